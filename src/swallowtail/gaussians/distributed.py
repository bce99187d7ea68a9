"""Statistics over the processes of a torch.distributed group: every process ends with those of all rows.

Moments travel by ``all_reduce``: two calls, of n + 2 and of n² numbers. Of the sample only the rows that stay travel.
Before anything else the processes tell each other what they have, so that a wrong array on one of them is one clear
error on all, and nobody waits for a process that has raised.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from swallowtail import checks
from swallowtail.errors import ArgumentError
from swallowtail.gaussians.mixture_statistics import MixtureStatistics
from swallowtail.gaussians.rows import check_scale, plain_weights
from swallowtail.gaussians.statistics import DenseMoments, Reservoir, RowStatistics


def fit_distributed(estimator: Any, X: Any, group: Any = None, sample_weight: Any = None) -> Any:
    """Fit an estimator to the rows of all processes of a group; each calls it with rows of its own.

    Args:
        estimator: a `GivensCovariance` or a `GivensMixture`, with the same arguments everywhere.
        X: this process's rows, shape (m, n); m may be 0, n is the same everywhere.
        group: the process group; the default one if it is left out.
        sample_weight: weights (m,) of this process's rows.

    Returns:
        The estimator, fitted, the same in all processes.
    """
    if not hasattr(estimator, "fit_reductions") and not hasattr(estimator, "add_statistics"):
        raise ArgumentError("estimator", "a GivensCovariance or a GivensMixture", type(estimator).__name__)
    rows, weights, names = agreed(X, sample_weight, group)
    fitted = _fit(estimator, rows, weights, group)
    if names is not None:
        fitted.feature_names_in_ = names
    return fitted


def _fit(estimator: Any, rows: np.ndarray, weights: np.ndarray | None, group: Any) -> Any:
    if hasattr(estimator, "fit_reductions"):
        own_sample = Reservoir(rows.shape[1], rows.dtype)
        own_sample.update(rows, weights)
        sample = all_samples(own_sample, group)
        _enough(len(sample.rows), float(sample.weights.sum()))
        reduce = lambda components, scatters: all_mixture(
            components.statistics(rows, scatters, weights), group
        )
        return estimator.fit_reductions(sample.rows, reduce, sample.weights)
    own = estimator.new_statistics(rows.shape[1], rows.dtype)
    if len(rows):
        own.update(rows, weights)
    total = all_rows(own, group)
    _enough(total.n_rows, total.moments.count)
    estimator.reset()
    return estimator.add_statistics(total)


def _enough(n_rows: int, weight: float) -> None:
    """As one process alone would refuse it."""
    if n_rows and not weight > 0:
        expected = "weights that add up to more than 0 in all processes together"
        raise ArgumentError("sample_weight", expected, weight)
    if n_rows < 2:
        raise ArgumentError("X", "2 rows or more in all processes together", n_rows)


def all_rows(own: RowStatistics, group: Any = None) -> RowStatistics:
    """The statistics of all processes' rows, in every process. A sketch is gathered and merged, not summed."""
    total = RowStatistics(own.n, own.dtype, own.sketch_size, own.moments.centered)
    if isinstance(own.moments, DenseMoments):
        total.moments = _all_moments(own.moments, group)
    else:
        for part in _gathered(own.moments, group):
            total.moments.merge(part)
    total.sample = all_samples(own.sample, group)
    total.n_rows = int(sum(_gathered(own.n_rows, group)))
    return total


def _all_moments(own: DenseMoments, group: Any) -> DenseMoments:
    total = DenseMoments(own.n, own.centered)
    first = _summed(np.append(own.mean * own.count, own.count), group)
    total.count = float(first[-1])
    if total.count > 0:
        total.mean = first[:-1] / total.count
    # M about the mean of all rows: each process moves its own there before the sum.
    delta = own.mean - total.mean
    total.scatter = _summed(own.scatter + np.outer(delta, delta * own.count), group)
    return total


def all_samples(own: Reservoir, group: Any = None) -> Reservoir:
    """The sample of all processes' rows, in every process."""
    total = Reservoir(own.rows.shape[1], own.rows.dtype)
    limit = np.sort(np.concatenate(_gathered(own.keys, group)))[: total.room]
    for part in _gathered(own.up_to(limit[-1]) if len(limit) else own, group):
        total.merge(part)
    return total


def all_mixture(own: MixtureStatistics, group: Any = None) -> MixtureStatistics:
    """The E-step statistics of all processes' rows, in every process."""
    counts = _summed(own.counts, group)
    safe = np.where(counts > 0, counts, 1.0)[:, None]
    share = own.counts[:, None]
    means, rotated = (_summed(part * share, group) / safe for part in (own.means, own.rotated))
    squares = _summed(own.squares + share * (own.rotated - rotated) ** 2, group)
    scatters = None
    if own.scatters is not None:
        delta = own.means - means
        scatters = _summed(own.scatters + share[:, :, None] * delta[:, :, None] * delta[:, None, :], group)
    log_density, n_rows = _summed(np.array([own.log_density, own.n_rows]), group)
    return MixtureStatistics(counts, means, rotated, squares, float(log_density), float(n_rows), scatters)


def agreed(
    X: Any, sample_weight: Any = None, group: Any = None
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
    """This process's rows, weights and names of columns, once all processes have said that theirs are good.

    Raises:
        ArgumentError: in all processes alike, naming those whose rows cannot be used.
    """
    if group is None and not dist.is_initialized():
        raise RuntimeError(
            "fit_distributed: expected a process group, got none; try torch.distributed.init_process_group(...) first"
        )
    rows, weights, trouble = None, None, ""
    try:
        rows, weights = _checked(X, sample_weight)
    except (TypeError, ValueError) as error:
        trouble = str(error)
    kind = None if rows is None else (rows.shape[1], str(rows.dtype))
    said = _gathered((trouble, kind, _names(X)), group)
    bad = [f"process {rank}: {what}" for rank, (what, _, _) in enumerate(said) if what]
    if bad:
        raise ArgumentError("X", "finite rows (m, n) in every process", "; ".join(bad))
    _same(
        "as many columns of one dtype",
        {rank: f"{kind[0]} of {kind[1]}" for rank, (_, kind, _) in enumerate(said)},
    )
    named = {rank: found for rank, (_, _, found) in enumerate(said) if found}
    _same("columns of the same names", {rank: str(found) for rank, found in named.items()})
    assert rows is not None
    names = next(iter(named.values()), None)
    return rows, weights, None if names is None else np.array(names, object)


def _names(X: Any) -> list[str]:
    """Names of a dataframe's columns, if they are words; an array has none."""
    names = list(getattr(X, "columns", []))
    return names if all(isinstance(name, str) for name in names) else []


def _checked(X: Any, sample_weight: Any) -> tuple[np.ndarray, np.ndarray | None]:
    checks.unmasked("X", X)
    rows = np.asarray(X)
    rows = rows if rows.dtype == np.float32 else rows.astype(np.float64)
    if rows.ndim != 2 or not rows.shape[1]:
        raise ValueError(f"an array of shape {rows.shape}")
    if not np.isfinite(rows).all():
        raise ValueError(f"NaN or infinity in row {int(np.nonzero(~np.isfinite(rows).all(1))[0][0])}")
    if len(rows):
        check_scale(rows)
    weights = None if sample_weight is None else plain_weights("sample_weight", sample_weight, len(rows))
    return rows, weights


def _same(what: str, found: dict[int, str]) -> None:
    if len(set(found.values())) > 1:
        listing = ", ".join(f"process {rank} has {one}" for rank, one in found.items())
        raise ArgumentError("X", f"{what} in every process", listing)


def _guarded(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except (RuntimeError, ValueError) as error:
        raise RuntimeError(
            "the process group no longer works: a process ended, or took longer than the group's timeout. This process "
            "has lost nothing: start a group of those that are left and call this again, or merge what each has saved "
            f"({error})"
        ) from error


def _summed(numbers: np.ndarray, group: Any) -> np.ndarray:
    tensor = torch.from_numpy(np.ascontiguousarray(numbers, np.float64).copy())
    nccl = _guarded(lambda: dist.get_backend(group)) == "nccl"
    tensor = tensor.cuda() if nccl else tensor
    _guarded(lambda: dist.all_reduce(tensor, group=group))
    return tensor.cpu().numpy()


def _gathered(thing: Any, group: Any) -> list[Any]:
    found: list[Any] = [None] * _guarded(lambda: dist.get_world_size(group))
    _guarded(lambda: dist.all_gather_object(found, thing, group=group))
    return found
