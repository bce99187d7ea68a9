"""Learning the transforms of a quantised model; on a GPU the gradients of a step are recorded as a CUDA graph."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from language_model import Size, Text, precision
from torch import Tensor, nn
from tqdm import tqdm

RATIO_RATE = 0.005  # at which the ratios of the ranges are learned
CHECKED_AT = 10  # the step whose recorded gradients are compared with launched ones: the angles have moved
# How far they may be from each other, as a share of how far they are from those at the first angles. A few numbers that
# are rounded the other way change a gradient; launches that went on reading the first angles would be infinitely far.
FARTHEST = 0.5


class Gradients:
    """Of the Kullback-Leibler divergence from the unquantised model, for the parameters that are learned.

    ``recorded``: as a CUDA graph. A step is thousands of small operations, and launching them takes the host several
    times as long as they take the device.
    """

    def __init__(self, student: nn.Module, teacher: nn.Module, first: Tensor, recorded: bool) -> None:
        self.student, self.teacher, self.rows = student, teacher, first.clone()
        self.learned = [p for p in student.parameters() if p.requires_grad]
        self._start = [p.detach().clone() for p in self.learned]
        self._graph = self._record() if recorded else None

    def __call__(self, rows: Tensor) -> None:
        """Of these rows of bytes."""
        self.rows.copy_(rows, non_blocking=True)
        if self._graph is None:
            self._run()
        else:
            self._graph.replay()

    def check(self) -> None:
        """An error if those that were replayed are not those of the same step when it is launched."""
        if self._graph is None:
            return
        if all(torch.equal(p, start) for p, start in zip(self.learned, self._start, strict=True)):
            return  # nothing has moved yet that could tell them apart
        kept, now = [p.grad for p in self.learned], [p.detach().clone() for p in self.learned]
        replayed, launched = self._flat(), self._launched(now)
        first = self._launched(self._start)
        self._set(now)
        for p, gradient in zip(self.learned, kept, strict=True):
            p.grad = gradient  # the graph writes there
        apart, moved = float((replayed - launched).norm()), float((replayed - first).norm())
        if not apart <= FARTHEST * moved:
            raise RuntimeError(
                f"expected recorded gradients like launched ones, got {apart:.2g} between them, and {moved:.2g} to "
                "those of the first angles"
            )

    def _launched(self, values: list[Tensor]) -> Tensor:
        self._set(values)
        self._run()
        return self._flat()

    def _set(self, values: list[Tensor]) -> None:
        with torch.no_grad():
            for p, value in zip(self.learned, values, strict=True):
                p.copy_(value)

    def _flat(self) -> Tensor:
        return torch.cat([p.grad.flatten() for p in self.learned if p.grad is not None])

    def _run(self) -> None:
        for p in self.learned:
            p.grad = None
        with precision(self.rows.device.type):
            with torch.no_grad():
                target = self.teacher(self.rows).float().log_softmax(-1)
            found = self.student(self.rows).float().log_softmax(-1)
        F.kl_div(found.flatten(0, 1), target.flatten(0, 1), log_target=True, reduction="batchmean").backward()

    def _record(self) -> torch.cuda.CUDAGraph:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        # Kernels compile and libraries set themselves up in their first calls.
        with torch.cuda.stream(stream):
            for _ in range(3):
                self._run()
        torch.cuda.current_stream().wait_stream(stream)
        for p in self.learned:
            p.grad = None
        graph = torch.cuda.CUDAGraph()
        # PyTorch keeps cuBLAS's workspaces per stream. One that was made while a graph was recorded lies in the memory
        # of that graph, so the next recording must not find it.
        torch._C._cuda_clearCublasWorkspaces()
        with torch.cuda.graph(graph):
            self._run()
        torch._C._cuda_clearCublasWorkspaces()
        return graph


def learn(
    student: nn.Module,
    teacher: nn.Module,
    text: Text,
    size: Size,
    device: str,
    steps: int,
    rate: float,
    record: bool = True,
) -> bool:
    """Adam on the transforms and ratios, against the unquantised model. Returns whether the steps were recorded.

    ``record``: as a CUDA graph on a GPU. If that fails, everything begins anew without.
    """
    start = {name: p.detach().clone() for name, p in student.named_parameters() if p.requires_grad}
    if record and device == "cuda":
        try:
            _learn(student, teacher, text, size, device, steps, rate, recorded=True)
        except RuntimeError as error:
            print(f"launched rather than recorded: {error}", flush=True)
            with torch.no_grad():
                for name, value in start.items():
                    student.get_parameter(name).copy_(value)
        else:
            return True
    _learn(student, teacher, text, size, device, steps, rate, recorded=False)
    return False


def _learn(
    student: nn.Module,
    teacher: nn.Module,
    text: Text,
    size: Size,
    device: str,
    steps: int,
    rate: float,
    recorded: bool,
) -> None:
    learned = {name: p for name, p in student.named_parameters() if p.requires_grad}
    ratios = [p for name, p in learned.items() if name.endswith("ratios")]
    others = [p for name, p in learned.items() if not name.endswith("ratios")]
    groups = [(others, rate), (ratios, RATIO_RATE)]
    optimise = torch.optim.Adam([{"params": p, "lr": r} for p, r in groups if p], betas=(0.9, 0.95))
    highest = [group["lr"] for group in optimise.param_groups]
    rows = text.batches(size, device, seed=7)
    first = next(text.batches(size, device, seed=7))[:, :-1]
    gradients = Gradients(student, teacher, first, recorded)
    for step in tqdm(range(steps), desc="learning", leave=False, mininterval=1):
        shape = min(1.0, (step + 1) / 10) * (0.5 + 0.5 * math.cos(math.pi * step / steps))
        for group, rate in zip(optimise.param_groups, highest, strict=True):
            group["lr"] = rate * shape
        gradients(next(rows)[:, :-1])
        if step == min(CHECKED_AT, steps - 1):
            gradients.check()
        optimise.step()
    for p in learned.values():
        p.grad = None  # a recorded one lies in the memory of its graph
