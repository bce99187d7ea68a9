"""Adam in rotated bases."""

from swallowtail.optim.adam.optimizer import GivensAdam

__all__ = ["GivensAdam"]
