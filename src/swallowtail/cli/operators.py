"""swallowtail info, swallowtail apply: what can be done with a saved operator."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import Any

from swallowtail.cli.files import (
    ARRAYS,
    STANDARD,
    check_outputs,
    dense,
    read_array,
    read_operator,
    write_array,
    write_standard,
)
from swallowtail.errors import ArgumentError

OPERATOR = "the saved operator, .safetensors; - for standard input"


def add_commands(commands: Any) -> None:
    """Add both commands to the parser."""
    info = commands.add_parser("info", help="describe a saved operator")
    info.add_argument("file", type=Path, help=OPERATOR)
    info.set_defaults(run=_info)

    apply = commands.add_parser("apply", help="multiply vectors by a saved operator")
    apply.add_argument("file", type=Path, help=OPERATOR)
    apply.add_argument("vectors", type=Path, help="X, (n,) or columns (n, k); - for standard input")
    apply.add_argument("--rows", action="store_true", help="the vectors are the rows of X, (k, n)")
    apply.add_argument(
        "-o",
        "--output",
        type=Path,
        action="append",
        required=True,
        help="where to save: .npy, .csv or .txt, or - for standard output; may be given more than once",
    )
    apply.add_argument("--inverse", action="store_true", help="solve instead of multiply")
    apply.add_argument("--epsilon", type=float, help="with --inverse: smaller eigenvalues count as this")
    apply.set_defaults(run=_apply)


def _info(options: argparse.Namespace) -> None:
    from swallowtail import HybridOperator, SymmetricOperator
    from swallowtail.fitting.result import count_floats
    from swallowtail.io import pack

    operator = read_operator(options.file)
    rotation: Any = getattr(operator, "rotation", operator)
    tensors = pack(operator)[1].values()
    rows: dict[str, Any] = {
        "operator": type(operator).__name__,
        "n": operator.n,
        "wiring": rotation.wiring,
        "dtype": str(operator.dtype).removeprefix("torch."),
        "floats": count_floats(operator),
        # A fit counts float32.
        "bytes in file": sum(tensor.numel() * tensor.element_size() for tensor in tensors),
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
    from swallowtail import HybridOperator, SymmetricOperator

    check_outputs("--output", options.output, ARRAYS, options.vectors, options.file)
    if options.epsilon is not None and not options.inverse:
        raise ArgumentError("--epsilon", "--inverse beside it", "it alone", "try both, or neither")
    if options.file == options.vectors == STANDARD:
        raise ArgumentError("-", "an operator or vectors", "both", "try a file for one of them")
    operator = read_operator(options.file)
    X = dense(str(options.vectors), read_array(options.vectors))
    X = X.T if options.rows else X
    if X.shape[0] != operator.n and X.shape == (1, operator.n):  # one line of a text file
        X = X[0]
    if X.ndim == 2 and X.shape[0] != operator.n:
        expected, got = f"{operator.n} {'columns' if options.rows else 'rows'}", f"{X.shape[0]}"
        other = X.shape[1] == operator.n
        hint = "" if not other else "leave out --rows" if options.rows else "try --rows"
        raise ArgumentError(str(options.vectors), expected, got, hint)
    if not options.inverse:
        result = operator @ X
    elif isinstance(operator, (SymmetricOperator, HybridOperator)):
        result = operator.solve(X, options.epsilon)
    else:
        raise ArgumentError("--inverse", "a symmetric operator", "a rotation")
    result = result.T if options.rows else result
    for path in options.output:
        if path == STANDARD:
            write_standard(partial(write_array, array=result), ".npy")
            continue
        write_array(path, result)
        text = sys.stderr if STANDARD in options.output else sys.stdout
        print(f"saved {result.shape} to {path}", file=text)
