"""Progress bars: tqdm's, with a lock that no other process can leave locked."""

from __future__ import annotations

import os
import threading
from typing import ClassVar
from weakref import WeakSet

from tqdm import tqdm


class Bar(tqdm):
    """A bar of tqdm's.

    The lock of tqdm itself is shared with forked children. A child that is killed while it holds the lock leaves its
    parent waiting at the next bar, even at one that is not shown. This lock belongs to one process.
    """

    monitor_interval = 0  # no thread that looks after bars: it too would hold the lock now and then
    _instances: ClassVar[WeakSet[Bar]] = WeakSet()
    _lock = threading.RLock()


def _own_lock() -> None:
    Bar._lock = threading.RLock()


if hasattr(os, "register_at_fork"):  # a thread of the parent that holds the lock is not in the child
    os.register_at_fork(after_in_child=_own_lock)
