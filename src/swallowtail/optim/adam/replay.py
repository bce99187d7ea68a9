"""Recording what a step asks of a GPU, to ask for it again in one call.

A step is some dozens of launches per matrix, and Python takes longer over them than the GPU over the work. A CUDA
graph holds all of them. It reads and writes where it did when it was recorded, so it serves only while the same
tensors lie at the same addresses. Optimiser state and parameters do; gradients mostly get the memory they had before.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

import torch

from swallowtail.optim.gradients import warn_user

MOST_KEPT = 8  # recordings: of a step and of a refit, for a few sets of addresses
MOST_MADE = 64  # recordings in all; addresses that change this often are not going to settle


class Replay:
    """Calls functions that only launch work; from the second time on with the same key, by replaying a recording."""

    def __init__(self) -> None:
        self._recorded: OrderedDict[Hashable, torch.cuda.CUDAGraph] = OrderedDict()
        self._seen: set[Hashable] = set()
        self._left = MOST_MADE
        # Shared, so that the scratch memory of all recordings is allocated once; it lives as long as they do.
        self._pool: Any = None
        # On the current device; torch's own stays on the device that recorded first.
        self._stream: Any = None

    def __call__(self, key: Hashable, run: Callable[[], None]) -> None:
        """Launch what ``run`` launches; ``key`` says which tensors and constants it uses."""
        found = self._recorded.get(key)
        if found is not None:
            self._recorded.move_to_end(key)
            found.replay()
        elif key in self._seen and self._left:
            self._record(key, run)
        else:
            if len(self._seen) >= MOST_MADE:
                self._seen.clear()
            self._seen.add(key)
            run()

    def _record(self, key: Hashable, run: Callable[[], None]) -> None:
        self._left -= 1
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        self._stream = self._stream or torch.cuda.Stream()
        graph = torch.cuda.CUDAGraph()
        try:
            # Thread-local, because other threads, such as NCCL's watchdog, go on using the device meanwhile.
            with torch.cuda.graph(
                graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"
            ):
                run()
        except RuntimeError as error:  # recording does no work, so nothing has happened yet
            self._left = 0
            warn_user(f"steps are slower than they could be: not recorded, {error}")
            run()
            return
        while len(self._recorded) >= MOST_KEPT:
            self._recorded.popitem(last=False)
        self._recorded[key] = graph
        graph.replay()

    def clear(self) -> None:
        """Forget the recordings: the tensors they use have been replaced."""
        self._recorded.clear()
        self._seen.clear()
        self._pool = None  # a pool whose recordings are gone is not used again
