"""The command line: swallowtail fit | info | apply | reproduce.

Exit codes: 0 done, 1 a mistake in the input (one line on stderr), 2 one in the command, 130 interrupted.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from safetensors import SafetensorError

from swallowtail.experiments import EXPERIMENTS

READS = ".npy, .npz (scipy sparse), .csv, .mtx, .safetensors"


class UserError(Exception):
    """Something the user can mend; shown without a traceback."""


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    options = _parser().parse_args(arguments)
    try:
        code = options.run(options)
    except KeyboardInterrupt:
        print("swallowtail: interrupted", file=sys.stderr)
        return 130
    except (UserError, ValueError, TypeError, RuntimeError, ImportError, OSError) as error:
        print(f"swallowtail: {error}", file=sys.stderr)
        return 1
    return code or 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="swallowtail", description="H ≈ Q D Qᵀ with Q a short product of rotations"
    )
    commands = parser.add_subparsers(required=True, metavar="command")

    fit = commands.add_parser("fit", help="fit a symmetric matrix", description=f"Reads {READS}.")
    fit.add_argument("matrix", type=Path)
    fit.add_argument("-o", "--output", type=Path, help="where to save the operator (.safetensors)")
    budget = fit.add_mutually_exclusive_group()
    budget.add_argument("--rotations", type=int, metavar="K", help="budget; default n⌈lg n⌉/2 · depth")
    budget.add_argument("--angle", type=float, metavar="DEGREES", help="stop at this quality")
    fit.add_argument("--depth", type=int, default=1)
    fit.add_argument("--wiring", choices=("auto", "butterfly", "pairs"), default="auto")
    fit.add_argument("--method", choices=("auto", "pairs", "butterfly", "recovery", "sgd"), default="auto")
    fit.add_argument("--target", choices=("matrix", "inverse", "likelihood"), default="matrix")
    fit.add_argument("--symmetrize", action="store_true", help="fit (H + Hᵀ)/2")
    fit.add_argument("--seconds", type=float, help="stop then, keep the best so far")
    fit.add_argument("--checkpoint", type=Path, help="continue from here after a kill")
    fit.add_argument("--seed", type=int, default=0)
    fit.add_argument("--plot", type=Path, help="draw history and spectrum to this file")
    fit.add_argument("--quiet", action="store_true", help="no progress bar")
    fit.set_defaults(run=_fit)

    info = commands.add_parser("info", help="describe a saved operator")
    info.add_argument("file", type=Path)
    info.set_defaults(run=_info)

    apply = commands.add_parser("apply", help="multiply columns by a saved operator")
    apply.add_argument("file", type=Path)
    apply.add_argument("columns", type=Path, help="X, (n,) or (n, k)")
    apply.add_argument("-o", "--output", type=Path, required=True, help=".npy")
    apply.add_argument("--inverse", action="store_true", help="solve instead of multiply")
    apply.set_defaults(run=_apply)

    reproduce = commands.add_parser(
        "reproduce",
        help="run the paper's experiments and write a report",
        description="Runs every experiment of Mathieu & LeCun (2014) and writes index.html, and beside it the rows as "
        "CSV and the figures as PNG. A run that was stopped continues if given the same folder.",
    )
    mode = reproduce.add_mutually_exclusive_group()
    mode.add_argument("--quick", action="store_true", help="few seeds, short fits: minutes (the default)")
    mode.add_argument("--full", action="store_true", help="the honest long run")
    mode.add_argument("--redraw", action="store_true", help="run nothing; draw again from the folder's rows")
    reproduce.add_argument("--only", metavar="NAMES", help=f"of {','.join(EXPERIMENTS)}; separated by commas")
    reproduce.add_argument(
        "--mnist", type=Path, metavar="PATH", help="MNIST's training images: file or folder"
    )
    reproduce.add_argument("-o", "--output", type=Path, default=Path("report"), help="the folder; report")
    reproduce.add_argument("--quiet", action="store_true", help="no progress bars")
    reproduce.set_defaults(run=_reproduce)
    return parser


def _fit(options: argparse.Namespace) -> None:
    from swallowtail import fit_symmetric, save

    if options.output is not None and not options.output.parent.is_dir():
        raise UserError(f"--output: expected an existing folder, got {options.output.parent}")
    if options.plot is not None:
        _check_plot(options.plot)
    result = fit_symmetric(
        read_array(options.matrix),
        n_rotations=options.rotations,
        target_angle=options.angle,
        depth=options.depth,
        wiring=options.wiring,
        method=options.method,
        target=options.target,
        symmetrize=options.symmetrize,
        max_seconds=options.seconds,
        checkpoint=options.checkpoint,
        seed=options.seed,
        progress=not options.quiet,
    )
    print(result)
    if options.output is not None:
        save(result.operator, options.output)
        print(f"saved to {options.output}")
    if options.plot is not None:
        result.plot(options.plot)
        print(f"plot in {options.plot}")


def _check_plot(path: Path) -> None:
    """Before the fit, not after it."""
    from matplotlib.backend_bases import FigureCanvasBase

    if not path.parent.is_dir():
        raise UserError(f"--plot: expected an existing folder, got {path.parent}")
    if path.suffix[1:] not in FigureCanvasBase.get_supported_filetypes():
        raise UserError(f"--plot: expected a file like plot.png or plot.pdf, got {path.name}")


def _info(options: argparse.Namespace) -> None:
    from swallowtail import SymmetricOperator, load
    from swallowtail.fitting.result import count_bytes, count_floats

    operator = load(options.file)
    rotation: Any = getattr(operator, "rotation", operator)
    rows: dict[str, Any] = {
        "operator": type(operator).__name__,
        "n": operator.n,
        "wiring": rotation.wiring,
        "dtype": str(operator.dtype).removeprefix("torch."),
        "floats": count_floats(operator),
        "bytes": count_bytes(operator),
        "multiply-adds": f"{operator.multiply_adds} (dense: {operator.n**2})",
    }
    if isinstance(operator, SymmetricOperator):
        d = operator.eigenvalues
        rows["eigenvalues"] = f"{float(d.min()):.4g} … {float(d.max()):.4g}, {int((d < 0).sum())} negative"
        rows["trace"], rows["log det"] = f"{float(operator.trace()):.6g}", f"{float(operator.logdet()):.6g}"
    for name, value in rows.items():
        print(f"{name:14s} {value}")


def _apply(options: argparse.Namespace) -> None:
    from swallowtail import SymmetricOperator, load

    operator = load(options.file)
    X = read_array(options.columns)
    X = X.toarray() if hasattr(X, "toarray") else X
    if options.inverse and not isinstance(operator, SymmetricOperator):
        raise UserError("--inverse: expected a symmetric operator, got a rotation")
    result = (
        operator.solve(X) if options.inverse and isinstance(operator, SymmetricOperator) else operator @ X
    )
    np.save(options.output, result)
    print(f"saved {result.shape} to {options.output}")


def _reproduce(options: argparse.Namespace) -> int:
    try:
        from swallowtail.experiments._reproduce import reproduce
    except ImportError as error:
        raise UserError(
            f"reproduce needs matplotlib ({error}); try: pip install swallowtail[plot]"
        ) from error
    mode = "full" if options.full else "quick"
    names = [name.strip() for name in (options.only or "").split(",") if name.strip()]
    if options.mnist is not None and not options.mnist.exists():
        raise UserError(f"--mnist: expected a file or folder, got nothing at {options.mnist}")
    command = f"swallowtail reproduce --{mode}"
    command += f" --only {','.join(names)}" if names else ""
    command += f" --mnist {options.mnist.name}" if options.mnist is not None else ""
    try:
        failures = reproduce(
            options.output,
            names,
            mode,
            mnist=options.mnist,
            redraw=options.redraw,
            command=command,
            progress=not options.quiet,
        )
    except KeyboardInterrupt:
        print(f"\nrows so far are in {options.output}; the same command continues", file=sys.stderr)
        raise
    for name, reason in failures.items():
        print(f"swallowtail: {name} failed: {reason}", file=sys.stderr)
    print(f"report in {options.output / 'index.html'}")
    return 1 if failures else 0


def read_array(path: Path) -> Any:
    """A matrix, or columns, from a file: an array, or a scipy sparse matrix."""
    if not path.is_file():
        raise UserError(f"expected a file, got nothing at {path}")
    try:
        return _read(path)
    except (ValueError, KeyError, EOFError, OSError, UserWarning, BadZipFile, SafetensorError) as error:
        raise UserError(f"{path}: expected {READS}; could not read it ({error})") from error


def _read(path: Path) -> Any:
    if path.suffix == ".npy":
        return np.load(path, allow_pickle=False)
    if path.suffix == ".npz":
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            names = list(archive)
            if "format" not in names:
                if len(names) != 1:
                    raise UserError(f"{path}: expected one array or a scipy sparse matrix, got {names}")
                return archive[names[0]]
        from scipy.sparse import load_npz

        return load_npz(path)
    if path.suffix == ".csv":
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # a file without numbers is a warning to NumPy
            return np.loadtxt(path, delimiter=",", ndmin=2)
    if path.suffix == ".mtx":
        from scipy.io import mmread

        return mmread(path)
    if path.suffix == ".safetensors":
        from safetensors.numpy import load_file

        tensors = load_file(path)
        if len(tensors) != 1:
            raise UserError(f"{path}: expected one tensor, got {sorted(tensors)}")
        return next(iter(tensors.values()))
    raise UserError(f"{path}: expected {READS}, got {path.suffix or 'no suffix'}")


if __name__ == "__main__":
    sys.exit(main())
