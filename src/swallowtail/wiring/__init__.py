"""Which coordinates meet: the one definition of who is rotated with whom, for every back end."""

from swallowtail.wiring.base import Wiring, from_text
from swallowtail.wiring.butterfly import Butterfly, pairs_at_stride
from swallowtail.wiring.grouped import Grouped
from swallowtail.wiring.groups import Group
from swallowtail.wiring.pairs import Pairs

__all__ = ["Butterfly", "Group", "Grouped", "Pairs", "Wiring", "from_text", "pairs_at_stride"]
