"""Tables in a GPU's memory that say where tensors lie."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import torch
from torch import Tensor

MOST_TABLES = 4096  # that are kept


def place(t: Tensor, first: Tensor) -> int:
    """Where a tensor begins, in entries from the first of its kind."""
    return (t.data_ptr() - first.data_ptr()) // t.element_size()


def on_device(table: Sequence[Sequence[int]], device: torch.device) -> Tensor:
    """A table in a GPU's memory.

    Recorded launches go on reading it, and a recording cannot make one, so it is kept. Gradients that are somewhere
    else in every step are not recorded for long; their tables would fill the memory.
    """
    return (_kept if _kept.cache_info().currsize < MOST_TABLES else _made)(table, device)


def _made(table: Sequence[Sequence[int]], device: torch.device) -> Tensor:
    host = torch.from_numpy(np.array(table, np.int64))
    return host.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else host


_kept = cache(_made)
