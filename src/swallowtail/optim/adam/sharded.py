"""Sharded parameters (FSDP2's DTensors): where each process's shard lies, and what has to be sent.

A matrix W (m, n) is sharded by rows. Q_R acts within rows, so it needs nothing from other processes. Q_L mixes
rows. For it the gradient is turned from blocks of rows to blocks of columns, one all-to-all, and the update is turned
back, another. The moments stay in between: they are (n, m), sharded along n. Angles and sketches are small, and every
process has all of them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from swallowtail.optim.adam.state import State


def is_sharded(t: Tensor) -> bool:
    """Whether a tensor is a DTensor."""
    return any_sharded((t,))


def any_sharded(tensors: Iterable[Tensor]) -> bool:
    """Whether one of them is a DTensor. Without DTensors in the process nothing is imported to find out."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and any(isinstance(t, module.DTensor) for t in tensors)


class Shards:
    """One sharded parameter: from this process's shard to the whole and back."""

    def __init__(self, p: Any, sizes: tuple[int, int] | None) -> None:
        from torch.distributed.tensor import Partial, Replicate, Shard

        self._whole, self._sizes = p, sizes
        self.mesh = p.device_mesh
        cut = [not isinstance(placement, Replicate) for placement in p.placements]
        self._rows = tuple(Shard(0) if c else Replicate() for c in cut)
        self._columns = tuple(Shard(1) if c else Replicate() for c in cut)
        self._sums = tuple(Partial() if c else Replicate() for c in cut)
        self._everywhere = (Replicate(),) * len(cut)
        self.part: Tensor = p.detach()  # this process's rows; see `begin_step`

    def gradient(self) -> Tensor:
        """This process's rows of the gradient."""
        return _local(self._whole.grad.redistribute(placements=self._rows))

    def begin_step(self, gradient: Tensor) -> None:
        """Show this process's rows as a plain tensor with a gradient."""
        part = _local(self._whole.detach().redistribute(placements=self._rows))
        if part.data_ptr() != self.part.data_ptr() or is_sharded(self.part):
            self.part = part  # else the object stays: it is how a stack knows its members
        self.part.grad = gradient

    def end_step(self) -> None:
        """The parameter becomes what its shard has become, whatever its placements are."""
        self.part.grad = None
        if self._whole.placements != self._rows:
            new = self._as_whole(self.part, self._rows, self._whole.shape)
            _local(self._whole.detach()).copy_(_local(new.redistribute(placements=self._whole.placements)))

    def zeros(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """State of this shape, sharded along its first axis: a DTensor, so that a checkpoint can be resharded."""
        from torch.distributed.tensor import zeros

        return zeros(shape, dtype=dtype, device_mesh=self.mesh, placements=self._rows)

    def turn(self, x: Tensor) -> Tensor:
        """This process's rows (1, m/P, n) of a matrix ↦ its rows of the transposed one, (1, n/P, m)."""
        assert self._sizes is not None
        return self._turned(x, self._sizes)

    def turn_back(self, x: Tensor) -> Tensor:
        """(1, n/P, m) ↦ (1, m/P, n)."""
        assert self._sizes is not None
        return self._turned(x, self._sizes[::-1])

    def _turned(self, x: Tensor, sizes: tuple[int, ...]) -> Tensor:
        whole = self._as_whole(x[0], self._rows, torch.Size(sizes))
        return _local(whole.redistribute(placements=self._columns)).mT.contiguous()[None]

    def sum(self, x: Tensor) -> Tensor:
        """The sum of all processes' x."""
        return _local(self._as_whole(x, self._sums, x.shape).redistribute(placements=self._everywhere))

    def every_row(self, indices: Tensor, x: Tensor) -> Tensor:
        """Rows of the whole matrix, wherever they lie; x (m/P, n) is this process's part."""
        assert self._sizes is not None
        first = self._first_row()
        mine = (indices >= first) & (indices < first + len(x))
        found = x.new_zeros(len(indices), x.shape[1])
        found[mine] = x[indices[mine] - first]
        return self.sum(found)

    def all_rows(self, x: Tensor) -> Tensor:
        """All rows of a matrix (m, k) of which x (m/P, k) is this process's part."""
        assert self._sizes is not None
        shape = torch.Size((self._sizes[0], x.shape[1]))
        return _local(self._as_whole(x, self._rows, shape).redistribute(placements=self._everywhere))

    def any(self, flag: bool) -> bool:
        """Whether a flag is set in any process."""
        return bool(self.sum(torch.tensor([float(flag)], device=self.part.device)).item() > 0)

    def _first_row(self) -> int:
        assert self._sizes is not None
        m = self._sizes[0]
        rows = self._as_whole(torch.arange(m, device=self.part.device), self._everywhere, torch.Size([m]))
        mine = _local(rows.redistribute(placements=self._rows))
        return int(mine[0]) if len(mine) else m

    def _as_whole(self, x: Tensor, placements: tuple[Any, ...], shape: torch.Size) -> Any:
        from torch.distributed.tensor import DTensor

        x = x.contiguous()
        stride = torch.empty(shape, device="meta").stride()
        return DTensor.from_local(x, self.mesh, placements, run_check=False, shape=shape, stride=stride)


def local_state(state: State) -> State:
    """State as this process sees it: its own shard of each DTensor."""
    return {key: _local(value) if is_sharded(value) else value for key, value in state.items()}


def keep_state(state: State, local: State) -> None:
    """Keep what a step has replaced. DTensors were written in place."""
    state.update({key: value for key, value in local.items() if not is_sharded(state[key])})


def all_agree(ok: bool, shards: Iterable[Shards]) -> bool:
    """Whether something is so in every process that holds a part. Each must ask, in the same order."""
    for each in {each.mesh: each for each in shards}.values():
        ok = not each.any(not ok)
    return ok


def _local(t: Any) -> Tensor:
    found = t.to_local()
    return found.wait() if hasattr(found, "wait") else found  # results of collectives may still be under way
