"""`fit_pairs` and `fit_grouped` for a matrix on a device: the same search, what is O(n²) where the matrix lies."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from swallowtail.fitting.core.build import WORK
from swallowtail.fitting.core.product import layered
from swallowtail.fitting.core.records import Callback, DenseFit
from swallowtail.fitting.core.stages import search_pairs
from swallowtail.fitting.device.confined import DeviceConfined
from swallowtail.fitting.device.objective import DeviceObjective
from swallowtail.fitting.device.walks import Steps, rotate
from swallowtail.fitting.methods.grouped import ROUNDS, SIZE, in_rounds
from swallowtail.fitting.methods.pairs import EFFORTS

# What the steps of a building in groups may cost. At n = 4096 an H200 takes 1.1 s for all eight, 0.6 s for two, which
# leave an exponential kernel 7.3° and 12.7° away. On free pairs steps take longer, as they have many layers.
WORK_IN_GROUPS = 5e12
CYCLES, AT = 6.0, 784 * 3920  # prune-and-regrow cycles by default at this n·K: half a second on an H200


class DeviceFit(NamedTuple):
    """H ≈ Q D Qᵀ, and the objective, with which H and Q can be multiplied on the device."""

    found: DenseFit
    objective: DeviceObjective

    def product(self, X: Tensor) -> Tensor:  # shape: (n, k)
        """Q D Qᵀ X, in the precision of the objective."""
        wiring, angles, d = self.found.wiring, self.found.angles, torch.from_numpy(self.found.eigenvalues)
        steps = Steps.of(wiring.n, wiring.flat_pairs(), X.device)
        c, s = steps.coefficients(angles, X.dtype)
        Y = X.clone(memory_format=torch.contiguous_format)
        rotate(Y, steps, c, s)
        Y *= d.to(X.device, X.dtype)[:, None]
        rotate(Y, steps, c, s, back=True)
        return Y


def fit_on_device(
    H: Tensor,
    n_rotations: int,
    *,
    grouped: bool = False,
    size: int = SIZE,
    n_rounds: int = ROUNDS,
    effort: str = "default",
    steps: int | None = None,
    cycles: int | None = None,
    finish: int | None = None,
    seed: int = 0,
    callback: Callback | None = None,
) -> DeviceFit:
    """Fit H ≈ Q D Qᵀ with ``n_rotations`` rotations chosen from H, where H lies.

    Args:
        H: symmetric, shape (n, n); half precision is fitted in float32.
        grouped: in rounds of groups.
        size, n_rounds: of these, as in `methods.grouped.fit_grouped`.
        n_rotations, effort, steps, cycles, finish, seed, callback: as in `methods.pairs.fit_pairs`.

    Returns:
        As `methods.pairs.fit_pairs`, K + n numbers on the host.
    """
    H = H if H.dtype == torch.float64 else H.float()
    objective = DeviceConfined(H, n_rotations, size, n_rounds) if grouped else DeviceObjective(H)
    if cycles is None:
        # A small cycle waits for the device rather than for its arithmetic: its time grows less than n·K does.
        affordable = CYCLES * (AT / (objective.n * max(n_rotations, 1))) ** 0.75
        cycles = round(EFFORTS[effort].cycles * affordable)
    search = search_pairs(
        objective,
        n_rotations,
        cycles=cycles,
        seed=seed,
        callback=callback,
        **EFFORTS[effort].of_search(objective.n, steps, finish, WORK_IN_GROUPS if grouped else WORK),
    )
    order = (objective.n, search.pairs, search.angles)
    wiring, angles = in_rounds(*order, size) if grouped else layered(*order)
    d = objective.eigenvalues(search.pairs, search.angles)
    return DeviceFit(DenseFit(wiring, angles, d, search.history), objective)
