"""In which steps bases are fitted: on a CPU not all in the same one, and seldom where they hardly move.

The first fit is that of all matrices at step ``refresh``. The second comes one to ``refresh`` steps later, by a
parameter's place among all matrices, so that the fits of many matrices are spread over steps. Then a fit that moved the
basis little doubles the time to the next one, up to `LONGEST` × ``refresh`` steps, and another one sets it back.

A GPU would have to be waited for to know how far a basis has moved. There all bases are fitted every ``refresh`` steps,
in one launch.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

# Of a parameter's state, where a CPU decides: the step of the next fit after the first, and how many times ``refresh``
# steps lay before it. Tensors without dimensions, which checkpoints keep on the CPU.
NEXT, TIMES = "fit_next", "fit_times"
LONGEST = 4
# The mean of sin² between a coordinate before a fit and after it, on the side that moved farther. Below it a basis
# hardly moves.
MOVED = 0.05


def fit_of(t: int, state: dict[str, Tensor], grouped: bool, refresh: int) -> int:
    """Whether bases are fitted in step ``t``: 1, or 2 for the first time, or 0.

    Groups wait until their moments have seen some gradients. So the first steps are Adam's own, and its moments begin
    anew in the first basis.
    """
    first = refresh if grouped else 1
    if t == first:
        return 2
    if NEXT in state:
        return int(t > first and t >= int(state[NEXT]))
    return int(t % refresh == 0)


def begin(state: dict[str, Any], place: int, refresh: int) -> None:
    """Decide from here on how often a parameter's bases are fitted; ``place``: its number among all matrices."""
    second = max(int(state["step"]), refresh) + 1 + place % refresh
    state[NEXT], state[TIMES] = (torch.tensor(float(x)) for x in (second, 1))


def go_on(state: dict[str, Tensor], t: int, refresh: int, still: bool) -> None:
    """When the next fit comes, after one in step ``t`` that left the basis ``still`` or moved it."""
    times = min(LONGEST, 2 * int(state[TIMES])) if still else 1
    state[TIMES].fill_(times)
    state[NEXT].fill_(t + refresh * times)


def stop(state: dict[str, Any]) -> None:
    """The state has gone to a GPU, where there is nothing to decide."""
    state.pop(NEXT, None)
    state.pop(TIMES, None)
