"""The options of single methods, with their types: what editors offer behind ``**options``."""

from __future__ import annotations

from typing import Any, TypedDict


class SharedOptions(TypedDict, total=False):
    """Options of `fit_rotation`, and of `fit_symmetric`. A method takes those that it has: see `request.OPTIONS`."""

    cycles: int | None  # "pairs", "grouped": prune-and-regrow cycles
    starts: int | None  # "butterfly": random starts
    kicks: int | None  # "butterfly": random changes of the best angles, each polished
    inputs: Any  # "sgd": where to take x; this and those below as in `fitting.methods.sgd.fit_sgd`
    n_samples: int | None
    fresh: bool
    epochs: int
    batch_size: int
    rate: Any
    rescale: bool
    floor: float | None
    tolerance: float | None
    angles: Any


class SymmetricOptions(SharedOptions, total=False):
    """Further options of `fit_symmetric`."""

    # "pairs": in which rotations are added and polished; 0: they grow greedily, which is fast.
    steps: int | None
    finish: int | None  # "pairs", "grouped": L-BFGS iterations at the end
    size: int  # "grouped": coordinates in a group
    n_rounds: int  # "grouped"
    order: Any  # "butterfly": which coordinate stands at which position
    rank: int | None  # "hybrid": how many rank-one terms
    passes: int  # "products"
    eigenvalues: Any  # "sgd": where D starts
