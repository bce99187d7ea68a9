"""One training run, and the time of a step."""

from __future__ import annotations

import functools
import gc
import math
import statistics
import time
from typing import NamedTuple

import torch
from torch import nn

from benchmarks.common.rows import Row
from benchmarks.language.methods import METHODS
from examples.language_model import LanguageModel, Size, library_sources, loss, precision, validate

SIZES = {  # parameters: 0.2, 21 and 104 million
    "0.2 M": Size(width=96, inner=256, layers=1, heads=4, context=64, batch=16),
    "20 M": Size(width=512, inner=1408, layers=6, heads=8, context=256, batch=32),
    "100 M": Size(width=1024, inner=2816, layers=8, heads=16, context=256, batch=32),
}
EQUAL_STEPS, EQUAL_TIME = "equal steps", "race"  # the part of a row
POINTS = 8  # of a curve
LOOK = 20  # steps between looks at the clock
WARM_UP = 0.05  # of the steps
# Before timing: GivensAdam compiles and records its steps when they come for the first and second time.
STEPS_BEFORE = {"GivensAdam": 25}
BLOCK, BLOCKS = 10, 3  # steps that are timed together; all methods refit in ten steps
text = functools.cache(library_sources)


class Job(NamedTuple):
    """A run: which model, with what, for how long."""

    size: str
    method: str
    rate: float
    seed: int
    steps: int
    device: str
    part: str = EQUAL_STEPS
    ms: float = 0.0  # of a step, where the number of steps follows from it


class Trainer:
    """A model and its optimisers.

    On a GPU the gradients of a step are recorded as a CUDA graph, for every method alike: launched one by one, a small
    model's kernels take the host longer than the device.
    """

    def __init__(self, job: Job) -> None:
        torch.set_float32_matmul_precision("high")  # SOAP's products in TF32
        self.job, self.size = job, SIZES[job.size]
        with torch.device(job.device):
            self.model = LanguageModel(self.size, job.seed)
        self.optimizers = METHODS[job.method].make(self.model, job.rate)
        self.rates = [[group["lr"] for group in each.param_groups] for each in self.optimizers]
        self.text = text()
        self._data = self.text.train.to(job.device)
        self._draws = torch.Generator().manual_seed(job.seed)
        self._span = torch.arange(self.size.context + 1, device=job.device)
        self._starts = torch.zeros(self.size.batch, 1, dtype=torch.int64, device=job.device)
        self._graph = self._recorded() if job.device == "cuda" else None

    def step(self, share: float) -> None:
        """One step at this share of the rate."""
        for optimizer, rates in zip(self.optimizers, self.rates, strict=True):
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate * share
        last = len(self._data) - self.size.context - 1
        starts = torch.randint(last, self._starts.shape, generator=self._draws)
        if self._graph is None:
            self._starts.copy_(starts)
            self._gradients()
        else:
            self._starts.copy_(starts.pin_memory(), non_blocking=True)
            self._graph.replay()
        for optimizer in self.optimizers:
            optimizer.step()

    def _gradients(self) -> None:
        """Of random rows, clipped."""
        self.model.zero_grad()
        rows = self._data[self._starts + self._span].long()
        with precision(self.job.device):
            value = loss(self.model, rows)
        value.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)

    def _recorded(self) -> torch.cuda.CUDAGraph:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):  # libraries set themselves up in their first calls
            for _ in range(3):
                self._gradients()
        torch.cuda.current_stream().wait_stream(stream)
        self.model.zero_grad()
        graph = torch.cuda.CUDAGraph()
        # PyTorch keeps cuBLAS's workspaces per stream. One that was made while a graph was recorded lies in the memory
        # of that graph, so the next recording must not find it.
        torch._C._cuda_clearCublasWorkspaces()
        with torch.cuda.graph(graph):
            self._gradients()
        torch._C._cuda_clearCublasWorkspaces()
        return graph

    def validate(self) -> float:
        return validate(self.model, self.text, self.size, self.job.device)


def release(device: str) -> None:
    """The memory of the run before, also to other processes."""
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()


def train(job: Job, until: float = math.inf) -> list[Row]:
    """The validation loss on the way: warm-up, then a rate that falls linearly to zero. Gives up at ``until``."""
    release(job.device)
    trainer, found = Trainer(job), []
    points = {max(1, job.steps * k // POINTS) for k in range(1, POINTS + 1)}
    for k in range(job.steps):
        if k % LOOK == 0:
            if job.device == "cuda":
                torch.cuda.synchronize()  # the host may be a second ahead
            if time.perf_counter() > until:
                raise TimeoutError(f"expected {job.steps} steps in the time that was left, got {k}")
        trainer.step(min(1.0, (k + 1) / (WARM_UP * job.steps)) * (1 - k / job.steps))
        if k + 1 in points:
            found.append({**job._asdict(), "step": k + 1, "loss": trainer.validate()})
    return found


def time_step(job: Job) -> Row:
    """Milliseconds of a whole step, as the median of blocks of steps; refits included as they come.

    By the clock on a GPU, with nothing else on it. On a CPU they are of the processor: others may share it.
    """
    release(job.device)
    trainer = Trainer(job)
    wait, clock = (lambda: None), time.process_time
    if job.device == "cuda":
        wait, clock = torch.cuda.synchronize, time.perf_counter

    def seconds(steps: int) -> float:
        begin = clock()
        for _ in range(steps):
            trainer.step(0.5)
        wait()
        return clock() - begin

    wait()
    first, before = seconds(1), STEPS_BEFORE.get(job.method, BLOCK)
    seconds(before)
    ms = statistics.median(1e3 * seconds(BLOCK) / BLOCK for _ in range(BLOCKS))
    steps = 1 + before + BLOCK * BLOCKS
    launched = "graph" if job.device == "cuda" else ""
    return {**job._replace(part="step", steps=steps, ms=ms)._asdict(), "first_s": first, "launched": launched}
