"""What a fit returns: the operator, how good it is, how it was found, and what the plain rivals reach."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from swallowtail.fitting import show
from swallowtail.fitting.budget import index_bytes
from swallowtail.fitting.core.factor import Factor
from swallowtail.fitting.core.records import History
from swallowtail.metrics import Estimate
from swallowtail.operators.base import Operator
from swallowtail.wiring import Pairs

# What is compared with what in an angle: f(H) x with its approximation, by target.
ANGLE_OF = {"matrix": "H", "inverse": "H⁻¹", "likelihood": "H", "rotation": "R", "function": "f(H)"}


class Candidate(NamedTuple):
    """One fitted form."""

    method: str
    operator: Any  # a SymmetricOperator or HybridOperator, a Rotation or SignedRotation; float64, on the CPU
    history: History
    objective: float


@dataclass(frozen=True)
class Rival:
    """Another form at a comparable budget."""

    name: str
    angle: float  # degrees, on the same probes as the fit's
    relative_error: float
    floats: int
    bytes: int  # float32 numbers, and indices where the form has them
    multiply_adds: int  # of one product
    equal: str  # what it shares with the fit: "floats", "bytes", "multiply-adds", "time", or "" for nothing
    time: float | None = None  # seconds of a product, by the same `TimeModel` as the fit's; None: not known
    score: float = 0.0  # what the target is judged by, lower is better: the angle, or nats per dimension


class Quality(NamedTuple):
    """How good a fit is, beside its rivals."""

    angle: Estimate  # degrees
    relative_error: float
    rivals: list[Rival]
    notes: list[str]  # sentences for the message
    estimated: bool = False  # from few products, not from all entries
    score: float | None = None  # what the target is judged by; None: the angle
    time: float | None = None
    time_source: str = ""


class Found(NamedTuple):
    """What a route of the runner found."""

    best: Candidate
    quality: Quality
    n_products: int
    status: str = "converged"  # or "exact"
    source: Factor | None = None  # H as products say it is, where there are no entries


@dataclass(frozen=True, repr=False)
class FitResult:
    """The record of a fit. ``print(result)`` shows it as a table.

    The angle and the error are those of what the fit's target makes close, called f(H) here: H for "matrix" and
    "likelihood", H⁻¹ for "inverse", R for a rotation, f(H) for a function of yours. ``angle_of`` names it.

    Attributes:
        operator: what was fitted. A `SymmetricOperator` or a `HybridOperator`; of `fit_rotation`, a `Rotation` or a
            `SignedRotation`. It approximates H, and for "inverse" its `inverse()` was measured. For a function of
            yours it is f(H) itself.
        of_H: the operator for H. For a function of yours: the same rotation with H's own eigenvalues in it,
            dᵢ = qᵢᵀHqᵢ, which are estimates where there are only products. For other targets it is ``operator``.
        angle_estimate: the angle with its 95 % confidence interval, 0 to 180 where nothing independent was measured.
        relative_error: ‖f(H) − f(operator)‖_F / ‖f(H)‖_F.
        estimated: whether angle and error come from few products instead of H's entries.
        rivals: the plain alternatives, each with a name, an angle, an error and its costs.
        message: at which budgets the fit won, tied and lost, and what else is worth knowing.
        status: "converged", "exact", "budget", "time", "interrupted" or "stopped".
        method: which algorithm gave the operator.
        target: "matrix", "inverse", "likelihood", "function" or "rotation".
        score: what the target is judged by, lower is better: the angle, or nats per dimension for "likelihood".
        n_products: columns that H was multiplied with; 0 if its entries were read.
        seconds: how long the fit took, without compilation.
        history: (stage, rotations, objective) after every step, the best so far.
        time: seconds of a product by the model of times; None where there is no model.
        time_source: of that model: "not calibrated", or when this machine was calibrated.
    """

    operator: Any
    angle_estimate: Estimate
    relative_error: float
    n_products: int
    seconds: float
    history: History
    status: str
    message: str
    method: str
    target: str
    estimated: bool = False
    rivals: list[Rival] = field(default_factory=list)
    score: float = 0.0
    time: float | None = None
    time_source: str = ""
    of_H: Any = None

    @property
    def angle(self) -> float:
        """Mean angle in degrees between f(H) x and f(operator) x, the paper's measure; `angle_of` names f(H)."""
        return self.angle_estimate.value

    @property
    def angle_of(self) -> str:
        """What the angle, the error and the rivals are measured on: "H", "H⁻¹", "f(H)" or "R"."""
        return ANGLE_OF[self.target]

    @property
    def floats(self) -> int:
        """Numbers stored: K angles, and n eigenvalues if it has them."""
        return count_floats(self.operator)

    @property
    def bytes(self) -> int:
        """Storage in float32, with two indices per rotation where the pairs are data."""
        return count_bytes(self.operator)

    @property
    def multiply_adds(self) -> int:
        """Of a product with one vector."""
        return int(self.operator.multiply_adds)

    def __str__(self) -> str:
        label = f"angle of {self.angle_of}" + (" (estimate)" if self.estimated else "")
        _, low, high = self.angle_estimate
        interval = "unconfirmed" if high - low >= 180 else f"{low:.2f} … {high:.2f}"
        products = f"{self.n_products} products, " if self.n_products else ""  # none where entries were read
        lines = [
            f"{self.method}: {label} {self.angle:.2f}° ({interval}), relative error "
            f"{self.relative_error:.4f}, {self.seconds:.2f} s, {products}{self.status}",
            f"{'form':34s} {'angle':>7s} {'rel. error':>10s} {'floats':>9s} {'bytes':>10s} {'mult-adds':>10s}"
            "  equal",
        ]
        this = Rival(
            "this fit",
            self.angle,
            self.relative_error,
            self.floats,
            self.bytes,
            self.multiply_adds,
            "",
        )
        lines += [
            f"{r.name:34s} {r.angle:6.2f}° {r.relative_error:10.4f} {r.floats:9d} {r.bytes:10d} "
            f"{r.multiply_adds:10d}  {r.equal}"
            for r in (this, *self.rivals)
        ]
        return "\n".join([*lines, self.message])

    @property
    def eigenvalues(self) -> np.ndarray:
        """Eigenvalues of the operator, largest first, shape (n,). Where it has rank-one terms, n³ work."""
        if not hasattr(self.operator, "trace"):
            raise AttributeError(
                "a rotation has no real eigenvalues; fit_symmetric gives operators that have"
            )
        if hasattr(self.operator, "eigenvalues"):
            return np.sort(self.operator.eigenvalues.detach().double().cpu().numpy())[::-1]
        return np.linalg.eigvalsh(np.asarray(self.operator, dtype=np.float64))[::-1]

    def __repr__(self) -> str:
        return (
            f"FitResult({self.method}, n = {self.operator.n}, {self.floats} floats, angle of {self.angle_of} "
            f"{self.angle:.2f}°, {self.status})"
        )

    def _repr_html_(self) -> str:
        return show.notebook(self)

    def plot(self, path: Any = None, *, H: Any = None) -> Any:
        """Draw the history of the objective and the spectrum (of a rotation: its angles).

        Args:
            path: where to save the figure.
            H: the matrix that was fitted. With it, its own spectrum and what is left of it are drawn as well.
        """
        return show.draw(self, path, H)


def build_result(
    found: Found,
    *,
    operator: Any,
    of_H: Any,
    seconds: float,
    target: str,
    target_angle: float | None,
    stopped: str,
) -> FitResult:
    """Put a result together.

    Args:
        found: the form that was chosen, and what was measured of it.
        operator, of_H: what the caller gets: of their dtype, on their device.
        seconds, target: as in `FitResult`.
        target_angle: the quality that was asked for.
        stopped: why the fit was stopped, or "".
    """
    quality, status, notes = found.quality, found.status, list(found.quality.notes)
    if target in ("inverse", "function"):
        notes.append(f"Angle, error and rivals are those of {ANGLE_OF[target]}.")
    if target_angle is not None and quality.angle.value > target_angle:
        status = "budget"
        notes.append(f"{target_angle}° was not reached; try a larger `n_rotations`.")
    return FitResult(
        operator=operator,
        of_H=of_H,
        angle_estimate=quality.angle,
        relative_error=quality.relative_error,
        n_products=found.n_products,
        seconds=seconds,
        history=found.best.history,
        status=stopped or status,
        message=" ".join(notes),
        method=found.best.method,
        target=target,
        estimated=quality.estimated,
        rivals=quality.rivals,
        score=quality.angle.value if quality.score is None else quality.score,
        time=quality.time,
        time_source=quality.time_source,
    )


def count_floats(operator: Operator) -> int:
    """K angles, n eigenvalues or signs (one, where they make c·I without rotations), and n + 1 per rank-one term."""
    rotation: Any = getattr(operator, "rotation", operator)
    terms = getattr(operator, "rank", 0) * (operator.n + 1)
    own = operator.n if rotation is not operator else 0
    if own and rotation.n_rotations == 0 and hasattr(operator, "rank"):
        d = operator.symmetric.eigenvalues  # type: ignore[attr-defined]
        own = 1 if bool((d == d[0]).all()) else own
    return int(rotation.n_rotations + own + terms)


def count_bytes(operator: Operator) -> int:
    """float32 numbers and, for chosen pairs, two indices of two bytes (four from n = 65536 on) per rotation."""
    rotation: Any = getattr(operator, "rotation", operator)
    indices = 0
    if isinstance(rotation.wiring, Pairs):
        indices = 2 * index_bytes(operator.n) * rotation.n_rotations
    return 4 * count_floats(operator) + indices
