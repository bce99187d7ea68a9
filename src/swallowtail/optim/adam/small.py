"""Small parameters on a CPU: which they are, and their steps, which `compiled` takes in three calls for all of them.

With few threads matrices of any size count as small.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from swallowtail.kernels.cpu.jit import switched_off
from swallowtail.optim.adam import compiled, compiled_fit
from swallowtail.optim.adam.bases import KeptBases
from swallowtail.optim.adam.fit import matrix_shape, turns
from swallowtail.optim.adam.gpu import gpu_for
from swallowtail.optim.adam.state import LEFT, RIGHT, SIDES, Rates, State, columns_of, fit_of, period_of

# A step is compiled for one thread. There it takes 0.2 to 0.45 of the time of PyTorch's calls, from 2¹⁷ entries to 2²⁴:
# less than they can take on FEW_THREADS. With more, larger matrices are left to them: entries, divided by the threads.
FEW_THREADS = 2
LARGEST, LEAST = 1 << 17, 1 << 12
LONGEST_VECTOR = 1 << 15
OF_VECTORS = ("step", "exp_avg", "exp_avg_sq")
OF_MATRICES = (*OF_VECTORS, LEFT.groups, RIGHT.groups, LEFT.group_moments, RIGHT.group_moments)
PLAIN = (Tensor, nn.Parameter)  # subclasses may keep their entries elsewhere
DTYPES = (torch.float32, torch.float64)

Groups = list[dict[str, Any]]


class SmallStep:
    """A step on those of some parameters that are small: `begin`, then the other methods in their order."""

    def __init__(self) -> None:
        self._groups: Groups = []
        self.rest: list[list[Tensor]] = []  # parameters that are not small, by group
        self._params: list[Tensor] = []  # all that were looked through
        self._members: list[_Member] = []
        self._dtype = torch.float32
        self._table = np.zeros((0, compiled.WIDTH), np.int64)
        self._numbers = np.zeros((0, compiled.SIGN + 1))
        self._work = self._new = np.zeros(0, np.float32)

    def begin(self, groups: Groups, active: list[list[Tensor]], state_of: dict[Tensor, State]) -> None:
        """Find the small ones among the active parameters of each group."""
        self._groups, params = groups, [p for part in active for p in part]
        same = (len(params), len(active)) == (len(self._params), len(self.rest))  # a group may have joined
        same = same and all(map(operator.is_, params, self._params))
        if not same or not self._next(state_of):
            self._params = params if self._find(active, state_of) else []
            self._next(state_of)

    def _find(self, active: list[list[Tensor]], state_of: dict[Tensor, State]) -> bool:
        """Whether the same ones will be small in the next step: not where state or usual gradients were missing."""
        self._members, self.rest = [], active
        like = next(p for part in active for p in part)
        if switched_off() or gpu_for(like) is not None:
            return True
        self._dtype, self.rest, stays, turn_of = like.dtype, [], True, turns(self._groups)
        for index, (group, part) in enumerate(zip(self._groups, active, strict=True)):
            rest = []
            for p in part:
                state = state_of.get(p, {})
                small = group["foreach"] is not False and _is_small(p, state, self._dtype)
                if small and _is_plain(p.grad, self._dtype):
                    self._members.append(_Member(p, state, index, turn_of.get(p, 0)))
                else:
                    rest.append(p)
                    stays = stays and bool(state) and not small
            self.rest.append(rest)
        sizes = [member.p.numel() for member in self._members]
        self._table = np.array([member.row for member in self._members], np.int64).reshape(-1, compiled.WIDTH)
        self._table[:, compiled.OFFSET] = np.cumsum([0, *sizes])[:-1]
        kind = np.float64 if self._dtype == torch.float64 else np.float32
        self._new = np.empty(sum(sizes), kind)
        self._work = np.empty(max((member.room for member in self._members), default=0), kind)
        return stays

    def _next(self, state_of: dict[Tensor, State]) -> bool:
        """Fill in what changes from step to step. False: tensors are no longer as they were when they were found."""
        kinds: dict[tuple[int, bool, int], int] = {}
        changing, dtype = [], self._dtype
        for member in self._members:
            p = member.p
            g, state = p.grad, state_of[p]
            assert g is not None
            if (
                p.shape != member.shape
                or p.dtype != dtype
                or not p.is_contiguous()
                or not _is_plain(g, dtype)
            ):
                return False
            if state is not member.state or len(state) < len(member.names):
                return False
            if [state[name].data_ptr() for name in member.names] != member.places:
                return False
            member.t = t = int(member.step) + 1
            kind = kinds.setdefault((member.index, member.is_matrix, t), len(kinds))
            changing.append((kind, t, p.data_ptr(), g.data_ptr()))
        if changing:
            self._table[:, : compiled.GRADIENT + 1] = changing
            self._numbers = np.array([_numbers(self._groups[k], matrix, t) for k, matrix, t in kinds])
        return True

    def usable(self) -> bool:
        """Whether a step can be taken with the gradients."""
        return not self._members or self._finite(compiled.largest_square(self._table, self._work))

    def propose(self, kept_bases: KeptBases) -> bool:
        """Fit bases where it is time, move the moments on, and find what parameters would become: whether finite."""
        if not self._members:
            return True
        self._refit(kept_bases)
        return self._finite(compiled.propose(self._table, self._numbers, self._work, self._new))

    def commit(self) -> None:
        """Parameters become what was proposed."""
        if self._members:
            compiled.commit(self._table, self._new)
            torch.autograd.graph.increment_version([member.p for member in self._members])

    def _finite(self, square: float) -> bool:
        return square < torch.finfo(self._dtype).max

    def _refit(self, kept_bases: KeptBases) -> None:
        due, first = [], []
        for k, member in enumerate(self._members):
            refresh = self._groups[member.index]["refresh"]
            fit = fit_of(member.t, True, refresh, member.turn) if member.is_matrix else 0
            if fit:
                due.append(k)
                first.append(fit == 2)
        if due:
            kept_bases.forget([self._members[k].p for k in due])
            compiled_fit.refit(self._table[due], np.array(first), self._work)


class _Member:
    """A small parameter with its state, and what stays the same of its row of the table."""

    def __init__(self, p: Tensor, state: State, index: int, turn: int) -> None:
        self.p, self.state, self.index, self.turn, self.t = p, state, index, turn, 0
        self.shape, sizes = p.shape, matrix_shape(p.shape)
        self.is_matrix = sizes is not None
        self.names = OF_MATRICES if self.is_matrix else OF_VECTORS
        self.places = [state[name].data_ptr() for name in self.names]
        self.step = state["step"].numpy()
        self.row, self.room = [0] * compiled.WIDTH, p.numel()
        m, n = sizes or (0, p.numel())
        self.row[compiled.ROWS], self.row[compiled.COLUMNS] = m, n
        if self.is_matrix:
            left, right = (state[side.groups].shape[1] for side in SIDES)
            self.row[compiled.LEFT_SIZE : compiled.RIGHT_SIZE + 1] = left, right
            of_left, of_right = columns_of(state, LEFT, n), columns_of(state, RIGHT, m)
            self.row[compiled.LEFT_COLUMNS : compiled.STEP] = (
                of_left, n // of_left, period_of(n, of_left), of_right, m // of_right, period_of(m, of_right)
            )  # fmt: skip
            self.room = 3 * m * n + m * of_left + max(left, right) ** 2
        self.row[compiled.STEP : compiled.STEP + len(self.places)] = self.places


def _numbers(group: dict[str, Any], is_matrix: bool, t: int) -> tuple[float, ...]:
    """A row of numbers, in the order that `compiled` names."""
    beta1, beta2 = group["betas"]
    decay, sign = group["statistics_decay"], -1.0 if group["maximize"] else 1.0
    return (*Rates.of_step(t, is_matrix, group), float(beta1), float(beta2), decay, sign)


def _is_plain(t: Any, dtype: torch.dtype) -> bool:
    """Whether the tensor's entries lie one after another in memory, as they are."""
    if type(t) not in PLAIN or t.dtype != dtype or t.layout is not torch.strided or not t.is_cpu:
        return False
    return t.is_contiguous() and not t.is_neg()


def _is_small(p: Tensor, state: State, dtype: torch.dtype) -> bool:
    sizes = matrix_shape(p.shape)
    names = OF_VECTORS if sizes is None else OF_MATRICES
    if dtype not in DTYPES or any(name not in state for name in names):
        return False
    tensors = [p, *(state[name] for name in names[1:])]
    if state["step"].dtype != torch.float32 or not all(_is_plain(t, dtype) for t in tensors):
        return False
    if state["exp_avg"].numel() != p.numel():
        return False  # its shape has changed, which is an error elsewhere
    if sizes is None:
        return p.numel() <= LONGEST_VECTOR
    threads = torch.get_num_threads()
    return threads <= FEW_THREADS or math.prod(sizes) <= max(LEAST, LARGEST // threads)
