"""A fit as people look at it: a figure, and what a notebook shows."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

import numpy as np

from swallowtail import atomic
from swallowtail.errors import ArgumentError, absent

OURS, TRUE, PLAIN = "#D55E00", "#66707F", "#0072B2"
WIDTH, HEIGHT = 300, 110  # of the small picture in a notebook


def draw(result: Any, path: Any, H: Any) -> Any:
    """The figure of `FitResult.plot`."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise absent("plot", "matplotlib", "plot", name=error.name) from error
    dense = None if H is None else _dense(H, result.operator.n)
    figure = Figure(figsize=(9 if dense is None else 13, 3.6), layout="constrained")
    axes = figure.subplots(1, 2 if dense is None else 3)
    _history(axes[0], result)
    spectrum = result.operator if hasattr(result.operator, "trace") else None
    if spectrum is None:
        rotation = getattr(result.operator, "rotation", result.operator)
        axes[1].hist(np.degrees(rotation.angles.detach().cpu().numpy()), bins=36, color=OURS)
        axes[1].set(xlabel="degrees", ylabel="rotations", title="angles of the fit")
    else:
        _spectrum(axes[1], result.eigenvalues, None if dense is None else np.linalg.eigvalsh(dense)[::-1])
    if dense is not None:
        limit = float(np.abs(dense).max()) or 1.0
        image = axes[2].imshow(dense - np.asarray(result.operator), cmap="RdBu_r", vmin=-limit, vmax=limit)
        axes[2].set(title="what is left, on H's scale", xlabel="column", ylabel="row")
        figure.colorbar(image, ax=axes[2], shrink=0.8)
    if path is not None:
        with atomic.replacing(path) as file:
            figure.savefig(file, dpi=150, format=Path(path).suffix[1:] or "png")
    return figure


def _history(axis: Any, result: Any) -> None:
    values = np.array([value for _, _, value in result.history])
    positive = len(values) > 0 and bool((values > 0).all())
    axis.plot(np.sqrt(values) if positive else values, color=PLAIN)
    axis.set(xlabel="improvement", ylabel="relative error" if positive else "objective", title="history")
    if positive:
        axis.set_yscale("log")


def _spectrum(axis: Any, found: np.ndarray, true: np.ndarray | None) -> None:
    """Eigenvalues, largest first; on a logarithmic axis where all are positive and far apart."""
    if true is not None:
        axis.plot(true, color=TRUE, label="H")
    axis.plot(found, ".", color=OURS, markersize=3, label="the fit")
    values = found if true is None else np.concatenate([found, true])
    if values.min() > 0 and values.max() > 30 * values.min():
        axis.set_yscale("log")
    axis.set(xlabel="index", ylabel="eigenvalue", title="spectrum")
    axis.legend()


def _dense(H: Any, n: int) -> np.ndarray:
    dense = np.asarray(H.toarray() if hasattr(H, "toarray") else H, dtype=np.float64)
    if dense.shape != (n, n):
        raise ArgumentError("H", f"the matrix that was fitted, ({n}, {n})", f"shape {dense.shape}")
    return dense


def notebook(result: Any) -> str:
    """HTML: the numbers, the rivals beside them, the spectrum as a small picture."""
    rows = [("this fit", result.angle, result.relative_error, result.floats, result.multiply_adds)]
    rows += [(r.name, r.angle, r.relative_error, r.floats, r.multiply_adds) for r in result.rivals]
    head = "".join(f"<th>{name}</th>" for name in ("form", "angle", "rel. error", "floats", "mult-adds"))
    body = "".join(
        f"<tr><td>{html.escape(name)}</td><td>{angle:.2f}°</td><td>{error:.4f}</td><td>{floats}</td>"
        f"<td>{work}</td></tr>"
        for name, angle, error, floats, work in rows
    )
    picture = _picture(result.eigenvalues) if hasattr(result.operator, "trace") else ""
    return (
        f"<p><b>{html.escape(repr(result))}</b></p>{picture}<table><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table><p>{html.escape(result.message)}</p>"
    )


def _picture(values: np.ndarray) -> str:
    """The spectrum as a line, largest first."""
    low, high = float(min(0.0, values.min())), float(max(0.0, values.max()))
    span = (high - low) or 1.0
    points = " ".join(
        f"{WIDTH * k / max(1, len(values) - 1):.1f},{HEIGHT - HEIGHT * (value - low) / span:.1f}"
        for k, value in enumerate(values)
    )
    return (
        f'<svg width="{WIDTH}" height="{HEIGHT}" viewBox="-2 -2 {WIDTH + 4} {HEIGHT + 4}" role="img" '
        f'aria-label="eigenvalues"><polyline points="{points}" fill="none" stroke="{OURS}" stroke-width="2"/></svg>'
    )
