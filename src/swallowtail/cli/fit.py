"""swallowtail fit, swallowtail fit-rotation."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from swallowtail import atomic, checks
from swallowtail.cli.files import (
    READS,
    STANDARD,
    check_outputs,
    dense,
    keep,
    read_array,
    write_array,
    write_standard,
)
from swallowtail.cli.options import budget_of, check_plot
from swallowtail.cli.render import in_options
from swallowtail.errors import ArgumentError
from swallowtail.fitting import request

# "products" is not among them: a file has entries, and of a large sparse one "auto" takes products.
METHODS = tuple(method for method in request.METHODS["symmetric"] if method != "products")
OUTPUTS = (".safetensors", ".npy", ".csv", ".txt", ".json")
LINES = 10.0  # seconds between two lines of progress where no terminal shows a bar


def add_commands(commands: Any) -> None:
    """Add both commands to the parser."""
    fit = commands.add_parser("fit", help="fit a symmetric matrix", description=f"Reads {READS}.")
    fit.add_argument("matrix", type=Path, help="the file with the matrix, or - for standard input")
    fit.add_argument(
        "--samples", action="store_true", help="the rows of the file are samples: fit their covariance"
    )
    _add_shared(fit, METHODS)
    fit.add_argument(
        "--budget",
        metavar="UNIT[:AMOUNT]",
        help="what the operator may cost, for example floats:4704. UNIT is floats, bytes, multiply_adds or time "
        "(seconds of a product with 256 vectors); without an amount, as much as the default rotations cost",
    )
    fit.add_argument(
        "--target",
        choices=request.TARGETS,
        default="matrix",
        help="what to approximate: the matrix (default), its inverse, or the density of data with this covariance",
    )
    fit.add_argument(
        "--symmetrize", action="store_true", help="fit (H + Hᵀ)/2 of a matrix that is not symmetric"
    )
    fit.set_defaults(run=_fit)
    rotation = commands.add_parser(
        "fit-rotation", help="fit an orthogonal matrix", description=f"Reads {READS}."
    )
    rotation.add_argument("matrix", type=Path, help="the file with the matrix, or - for standard input")
    _add_shared(rotation, request.METHODS["rotation"])
    rotation.set_defaults(run=_fit_rotation, samples=None)  # rows of samples have no rotation


def _add_shared(fit: argparse.ArgumentParser, methods: tuple[str, ...]) -> None:
    fit.add_argument(
        "-o",
        "--output",
        type=Path,
        action="append",
        default=[],
        help="where to save; may be given more than once. .safetensors: the operator. .npy, .csv, .txt: its matrix. "
        ".json: the numbers that are printed. -: the operator to standard output",
    )
    fit.add_argument(
        "--rotations", type=int, metavar="K", help="the number of rotations (default: n⌈lg n⌉/2 · depth)"
    )
    fit.add_argument(
        "--angle",
        type=float,
        metavar="DEGREES",
        help="stop at this angle, with as few rotations as it takes; --rotations is then their upper limit",
    )
    fit.add_argument(
        "--depth",
        type=int,
        default=1,
        help="depth of a butterfly, and of the default --rotations (default: 1)",
    )
    fit.add_argument(
        "--wiring",
        choices=("auto", "butterfly", "pairs", "grouped"),
        default="auto",
        help="which coordinates each rotation turns: a fixed pattern (butterfly), pairs chosen from the matrix, or "
        "such pairs in rounds of groups; auto (default) keeps the best",
    )
    fit.add_argument(
        "--method", choices=methods, default="auto", help="insist on one algorithm (default: auto)"
    )
    fit.add_argument(
        "--effort",
        choices=request.EFFORTS,
        default="default",
        help="quick takes less time, best about eight times as long as default",
    )
    fit.add_argument("--seconds", type=float, help="stop after this many seconds and keep the best so far")
    fit.add_argument("--checkpoint", type=Path, help="a file to continue from after Ctrl-C or a kill")
    fit.add_argument("--seed", type=int, default=0, help="seed of everything random (default: 0)")
    fit.add_argument("--plot", type=Path, help="draw the history and the spectrum to this file")
    fit.add_argument("--quiet", action="store_true", help="show no progress")


def _fit(options: argparse.Namespace) -> int:
    from swallowtail import fit_symmetric

    budget = None if options.budget is None else budget_of(options.budget)
    more = {"target": options.target, "symmetrize": options.symmetrize, "budget": budget}
    return _run(options, partial(fit_symmetric, **more))


def _fit_rotation(options: argparse.Namespace) -> int:
    from swallowtail import fit_rotation

    return _run(options, fit_rotation)


def _run(options: argparse.Namespace, fit: Callable[..., Any]) -> int:
    """Read, fit, save and print; returns the exit code."""
    checks.integer("--seed", options.seed, at_least=0)
    check_outputs("--output", options.output, OUTPUTS, options.matrix)
    if options.plot is not None:
        check_plot(options.plot)
    if options.checkpoint is not None:
        check_outputs("--checkpoint", [options.checkpoint], (), options.matrix, *options.output)
    matrix = read_array(options.matrix)
    if matrix.ndim == 2 and matrix.shape[0] != matrix.shape[1] and options.samples is False:
        hint = "try --samples if its rows are samples"
        raise ArgumentError(str(options.matrix), "a square matrix", f"shape {matrix.shape}", hint)
    watched = sys.stderr.isatty()
    try:
        result = fit(
            _covariance(matrix) if options.samples else matrix,
            n_rotations=options.rotations,
            target_angle=options.angle,
            depth=options.depth,
            wiring=options.wiring,
            method=options.method,
            effort=options.effort,
            max_seconds=options.seconds,
            checkpoint=options.checkpoint,
            seed=options.seed,
            progress=watched and not options.quiet,
            callback=None if watched or options.quiet else _Lines(),
        )
    except KeyboardInterrupt:  # the second Ctrl-C: they want no result
        return _interrupted(options.checkpoint)
    # The operator first: neither a full disk nor a closed pipe may cost the work.
    kept = {path: keep(path, partial(_save, result)) for path in options.output if path != STANDARD}
    print_text = partial(print, file=sys.stderr if STANDARD in options.output else sys.stdout)
    print_text(in_options(str(result)))
    for path, there in kept.items():
        if there:
            print_text(f"saved to {path}")
    if options.plot is not None:
        result.plot(options.plot)
        print_text(f"plot in {options.plot}")
    if STANDARD in options.output:
        write_standard(partial(_save, result), ".safetensors")
    if result.status == "interrupted":
        return _interrupted(options.checkpoint)
    return 0 if all(kept.values()) else 1


def _covariance(samples: Any) -> np.ndarray:  # shape: (n, n)
    """The covariance of rows."""
    rows = dense("--samples", samples)
    if rows.ndim != 2 or len(rows) < 2:
        raise ArgumentError("--samples", "two or more rows of numbers", f"shape {rows.shape}")
    if not np.isfinite(rows).all():
        raise ArgumentError("--samples", "finite numbers", "NaN or infinity", "leave those rows out")
    checks.fits_in_memory("their covariance", 8 * rows.shape[1] ** 2)
    return np.atleast_2d(np.cov(rows, rowvar=False))


def _save(result: Any, path: Path) -> None:
    """The operator, its matrix, or the numbers of a fit, by the file's ending."""
    from swallowtail import save

    if path.suffix == ".safetensors":
        save(result.operator, path)
    elif path.suffix == ".json":
        contents = json.dumps(_summary(result), indent=1, ensure_ascii=False) + "\n"
        with atomic.replacing(path) as file:
            file.write(contents.encode())
    else:
        write_array(path, result.operator.to_dense().numpy())


def _summary(result: Any) -> dict[str, Any]:
    low, high = result.angle_estimate[1:]
    return {
        "method": result.method,
        "status": result.status,
        "n": result.operator.n,
        "angle": result.angle,
        "angle_interval": [low, high],
        "relative_error": result.relative_error,
        "floats": result.floats,
        "bytes": result.bytes,
        "multiply_adds": result.multiply_adds,
        "seconds": result.seconds,
        "products": result.n_products,
        "rivals": [dataclasses.asdict(rival) for rival in result.rivals],
        "message": result.message,
    }


class _Lines:
    """Progress for a log: a line after a second, and then now and then."""

    def __init__(self) -> None:
        self.begin = time.perf_counter()
        self.next = self.begin + min(1.0, LINES)

    def __call__(self, stage: str, rotations: int, objective: float) -> None:
        now = time.perf_counter()
        if now >= self.next:
            self.next = now + LINES
            text = f"swallowtail: {now - self.begin:.0f} s, {stage}, {rotations} rotations"
            print(text, file=sys.stderr, flush=True)


def _interrupted(checkpoint: Path | None) -> int:
    """Say how to continue; returns the exit code."""
    if checkpoint is None:
        hint = "a fit with --checkpoint FILE could be continued"
    elif checkpoint.is_file():
        hint = f"the same command continues from {checkpoint}"
    else:  # too early, or a method that keeps no states
        hint = f"there was nothing to keep in {checkpoint} yet, so the same command begins again"
    print(f"swallowtail: interrupted; {hint}", file=sys.stderr)
    return 130
