"""A learning step of grouped rotations beside a loop over their rounds.

python -m benchmarks.language_models.learning_step [--device cuda]

Both run forward and backward on kernels of ours; the loop calls one round at a time and leaves the rest to autograd, as
pairwise quantisers do. The angles change before every step. The two take turns, and the shortest step of each counts.
On a GPU a step is timed in three ways: alone, with the host's work and the wait for the device; one after another
without a wait, as in a training loop; and recorded as a CUDA graph, then replayed, as in a loop that does not wait for
the host either. Writes benchmarks/results/learning-step-<device>.csv after each row, in place of earlier rows of the
same sizes.
"""

from __future__ import annotations

import argparse
import itertools
import shlex
import sys
import time
import traceback
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

import swallowtail as st
from benchmarks.common.bars import Bar
from benchmarks.common.rows import RESULTS, Row, read_rows, write_rows
from benchmarks.common.timing import interleaved
from swallowtail.nn import Rotate

SIZES = (4096, 3584, 13696)  # the last two are widths of language models that no Hadamard matrix of 2^k fits
ROUNDS, BLOCK = 8, 128
BAR_AT, BAR = 4096, 5.0  # on a GPU, in bfloat16
NAMES = ("grouped", "loop")
Contender = tuple[Callable[[Tensor], Tensor], list[Tensor]]  # forward, and its angles
Contenders = tuple[Contender, ...]
Step = Callable[[], tuple[Tensor, ...]]  # returns the gradients


def layers_of(n: int, device: str) -> tuple[Rotate, list[Rotate]]:
    """All rounds as one layer, and the same rotations as a layer per round."""
    whole = Rotate(wiring=st.Grouped.fixed(n, BLOCK, ROUNDS), init="random", seed=0, device=device)
    rounds = [
        Rotate(wiring=st.Grouped.fixed(n, BLOCK, pairs=[pairs]), device=device)
        for pairs in whole.wiring.layers()
    ]
    with torch.no_grad():
        for layer, angles in zip(rounds, whole.angles.chunk(ROUNDS), strict=True):
            layer.angles.copy_(angles)
    return whole, rounds


def measure(n: int, rows: int, dtype: torch.dtype, device: str, repeats: int) -> Row:
    whole, rounds = layers_of(n, device)
    generator = torch.Generator().manual_seed(n)
    x, gradient = (torch.randn(rows, n, generator=generator).to(device, dtype) for _ in range(2))
    x.requires_grad_()

    def loop(x: Tensor) -> Tensor:
        for layer in reversed(rounds):
            x = layer(x)
        return x

    def wait() -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    def step(forward: Callable[[Tensor], Tensor], angles: list[Tensor]) -> tuple[float, list[Tensor]]:
        with torch.no_grad():
            for tensor in angles:
                tensor.add_(1e-4)
        wait()
        begin = time.perf_counter()
        found = torch.autograd.grad(forward(x), (x, *angles), gradient)
        wait()
        return time.perf_counter() - begin, list(found)

    contenders: Contenders = ((whole, [whole.angles]), (loop, [layer.angles for layer in rounds]))
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeats):
        answers = []
        for (forward, angles), of_this in zip(contenders, times, strict=True):
            seconds, answer = step(forward, angles)
            of_this.append(seconds)
            answers.append(torch.cat([answer[0].flatten().float(), *answer[1:]]))
        torch.testing.assert_close(*answers, rtol=0.02, atol=0.05 * float(answers[0].abs().max()))
    together, one_by_one = map(min, times)
    row = {
        "n": n,
        "rows": rows,
        "dtype": str(dtype).removeprefix("torch."),
        "rounds": ROUNDS,
        "grouped_ms": 1e3 * together,
        "loop_ms": 1e3 * one_by_one,
        "ratio": one_by_one / together,
    }
    return row if device == "cpu" else row | _without_waits(contenders, x, gradient, repeats)


def _without_waits(contenders: Contenders, x: Tensor, gradient: Tensor, repeats: int) -> Row:
    """Medians of steps that follow each other without a wait for the device: launched, and replayed."""

    def step(forward: Callable[[Tensor], Tensor], angles: list[Tensor]) -> Step:
        def run() -> tuple[Tensor, ...]:
            with torch.no_grad():
                torch._foreach_add_(angles, 1e-4)
            return torch.autograd.grad(forward(x), (x, *angles), gradient)

        return run

    steps = {name: step(*each) for name, each in zip(NAMES, contenders, strict=True)}
    found = _medians(steps, repeats, "in_a_row")
    try:
        recorded = {name: _recorded(steps[name], each) for name, each in zip(NAMES, contenders, strict=True)}
        return found | _medians(recorded, repeats, "graph")
    except RuntimeError:  # the rows of the other ways are worth keeping
        print(f"not recorded:\n{traceback.format_exc()}", flush=True)
        return found


def _medians(steps: dict[str, Step], repeats: int, how: str) -> Row:
    times = interleaved(steps, repeats, "cuda", "steps")
    grouped, loop = (1e3 * float(np.median(times[name])) for name in NAMES)
    return {f"grouped_{how}_ms": grouped, f"loop_{how}_ms": loop, f"ratio_{how}": loop / grouped}


def _recorded(step: Step, contender: Contender) -> Step:
    """The step as a CUDA graph. Its gradients must be those of a step that is launched, also at angles that are new."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):  # kernels compile and tables are made in the first calls
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = step()
    with torch.no_grad():
        torch._foreach_add_(contender[1], 0.3 - 1e-4)
    graph.replay()
    replayed = [tensor.clone() for tensor in found]
    with torch.no_grad():
        torch._foreach_sub_(contender[1], 1e-4)
    for expected, got in zip(step(), replayed, strict=True):
        torch.testing.assert_close(got, expected, rtol=0.02, atol=0.01 * float(expected.abs().max()))

    def replay() -> tuple[Tensor, ...]:
        graph.replay()
        return found

    return replay


def _case(row: Row) -> tuple[str, ...]:
    """What a row has to share with one of another run in order to replace it."""
    return tuple(str(row[name]) for name in ("n", "rows", "dtype", "rounds"))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--rows", type=int, nargs="+", default=[512])
    parser.add_argument("--repeats", type=int, default=40)
    options = parser.parse_args()
    torch.set_num_threads(1)
    command = shlex.join(["python", "-m", "benchmarks.language_models.learning_step", *sys.argv[1:]])
    file = f"learning-step-{options.device}"
    earlier, found = read_rows(file), list[Row]()
    for n, rows, dtype in itertools.product(options.sizes, options.rows, (torch.bfloat16, torch.float32)):
        row = measure(n, rows, dtype, options.device, options.repeats)
        if any(
            _case(each) == _case(row) and each.get("ratio_graph") and "ratio_graph" not in row
            for each in earlier
        ):
            print("not recorded this time: the earlier row of this size stays", flush=True)
            continue
        found.append(row)
        earlier = [each for each in earlier if _case(each) != _case(row)]
        write_rows(file, [*found, *earlier], command, options.device)
        print(*(f"{value:.4g}" if isinstance(value, float) else value for value in row.values()), flush=True)
    for row in found:
        if options.device == "cuda" and row["n"] == BAR_AT and row["dtype"] == "bfloat16":
            for how in ("ratio", "ratio_in_a_row", "ratio_graph"):
                if how in row:
                    print(Bar(f"loop / grouped step, {row['rows']} rows, {how}", row[how], "≥", BAR).line(50))
    print("rows:", RESULTS / f"{file}.csv")


if __name__ == "__main__":
    main()
