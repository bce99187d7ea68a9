"""Rows split across Python's threads. No thread writes any more when a call has returned or raised."""

import contextlib
import os
import queue
import random
import signal
import subprocess
import sys
import threading
import time

import pytest
import torch
from bounded import started
from cpu_checks import environment, run_program

from swallowtail.kernels.cpu import threads


def test_rows_are_handed_out_once(monkeypatch):
    monkeypatch.setattr(threads, "WORTH_A_THREAD", 1)
    for n_threads in (1, 2, 3, 7):
        torch.set_num_threads(n_threads)
        for count in (0, 1, 2, 3, 4, 5, 17, 64):
            pieces = threads.over_rows(lambda a, b: range(a, b), count, 100)
            assert [i for piece in pieces for i in piece] == list(range(count))
            assert len(pieces) <= n_threads
    torch.set_num_threads(4)
    assert len(threads.over_rows(lambda a, b: None, 64, 100)) == 4


def test_small_work_stays_on_one_thread():
    torch.set_num_threads(4)
    assert len(threads.over_rows(lambda a, b: None, 64, 100)) == 1
    assert len(threads.over_rows(lambda a, b: None, 2**12, 2**10)) == 4 * threads.PIECES
    assert len(threads.over_rows(lambda a, b: None, 2**7, 2**15)) == 4  # large pieces, or one for each thread


def test_an_error_in_a_thread_reaches_the_caller(monkeypatch):
    monkeypatch.setattr(threads, "WORTH_A_THREAD", 1)
    torch.set_num_threads(2)

    def work(start, stop):
        if start:
            raise ArithmeticError("in the second piece")

    with pytest.raises(ArithmeticError, match="second piece"):
        threads.over_rows(work, 10, 10)


def test_an_error_in_the_caller_waits_for_the_threads(monkeypatch):
    """They write to memory that the caller may free."""
    monkeypatch.setattr(threads, "WORTH_A_THREAD", 1)
    torch.set_num_threads(2)
    begun, done = threading.Event(), []

    def work(start, stop):
        if threading.current_thread() is threading.main_thread():
            assert begun.wait(10)
            raise KeyboardInterrupt
        begun.set()
        time.sleep(0.2)
        done.append(start)

    with pytest.raises(KeyboardInterrupt):
        threads.over_rows(work, 10, 10)
    seen = len(done)
    time.sleep(0.5)
    assert seen == len(done) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_threads_work_in_a_forked_child():
    program = """
import os, sys, torch
from swallowtail import Rotation
from swallowtail.kernels.cpu import backend, launch, openmp, threads
torch.set_num_threads(2)
Q, x = Rotation.random(64, seed=0), torch.ones(3000, 64)
threads.WORTH_A_THREAD = launch.WORTH_A_THREAD = 1
expected = Q(x).numpy().copy()
child = os.fork()
if child == 0:
    y = Q(x).numpy()  # torch's own threads do not survive a fork: no torch operation from here on
    os._exit(0 if (y == expected).all() else 3)
_, status = os.waitpid(child, 0)
sys.exit(os.waitstatus_to_exitcode(status))
"""
    done = run_program(program, warnings="ignore", timeout=60)
    assert done.returncode == 0, done.stderr


INTERRUPTS = 40

# Makes one call after another until it is killed. It says READY and its process's number, then one line for each
# interrupt that left a call: how many threads were at work on that call afterwards.
PROGRAM = """
import os, signal, sys, threading, time
import numpy as np, torch
from swallowtail import Butterfly, Pairs
from swallowtail.kernels.cpu import backend, backward, launch, openmp, threads

torch.set_num_threads(6)
for module in (threads, launch, backward):
    module.WORTH_A_THREAD = 1
what, entry, action = sys.argv[1:]
if entry == "python":
    openmp._enter = None
else:
    assert openmp.available()

if what == "sleep":
    inside = set()

    def work(start, stop):
        me = threading.current_thread()
        if me is not threading.main_thread():
            inside.add(me)
        time.sleep(0.004)
        inside.discard(me)

    call, at_work = lambda: threads.over_rows(work, 600, 1), lambda: len(inside)
else:
    rng = np.random.default_rng(0)
    if what == "pairs":
        wiring, m = Pairs(256, [rng.permutation(256).reshape(-1, 2) for _ in range(60)]), 3000
    else:
        wiring, m = Butterfly(1024, 8), 1000
    x, y = torch.ones(1, m, wiring.n), torch.ones(1, m, wiring.n)
    angles = torch.ones(1, wiring.n_rotations)
    if action == "backward":
        prepared = backend.prepare(wiring, angles, fast=False, training=True)
        call = lambda: backward._walk(prepared, x, x, y, False)
    else:
        run = launch.bound(wiring, action, backend.prepare(wiring, angles, torch.ones(1, wiring.n))[0])
        call = lambda: run(x.data_ptr(), y.data_ptr(), m)

    def at_work():
        y.fill_(7)
        time.sleep(0.005)
        return int((y != 7).any())  # then a thread was still writing

call()
if action == "fork" and (child := os.fork()):
    os.waitpid(child, 0)
    os._exit(0)

def interrupt(*_):
    if armed:
        raise KeyboardInterrupt

armed = False
signal.signal(signal.SIGINT, interrupt)
call()
print("READY", os.getpid(), flush=True)
while True:
    try:
        try:
            armed = True
            while True:
                call()
        except KeyboardInterrupt:
            armed = False
            print("LEFT", at_work(), flush=True)
    except KeyboardInterrupt:  # a second one, before `armed` was False
        armed = False
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
@pytest.mark.parametrize(
    ("what", "entry", "action"),
    [
        ("sleep", "python", "call"),
        ("sleep", "python", "fork"),
        ("pairs", "python", "from_basis"),
        ("pairs", "python", "backward"),
        ("butterfly", "openmp", "symmetric"),
    ],
)
def test_no_thread_is_at_work_after_an_interrupt(what, entry, action):
    rng = random.Random(0)
    with started(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, what, entry, action],
        env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as child:  # fmt: skip
        ready = child.stdout.readline().split()
        assert ready, child.stderr.read()
        assert ready[0] == "READY"
        lines, told = queue.Queue(), []
        reader = threading.Thread(target=lambda: [lines.put(line) for line in child.stdout], daemon=True)
        reader.start()
        deadline = time.monotonic() + 60
        # Some come while the call waits for its threads, some between two calls.
        while len(told) < INTERRUPTS:
            time.sleep(rng.expovariate(1 / 0.003))
            os.kill(int(ready[1]), signal.SIGINT)
            with contextlib.suppress(queue.Empty):
                told.append(lines.get(timeout=rng.choice((0, 0, 0.05))))
            assert child.poll() is None, child.stderr.read()
            assert time.monotonic() < deadline, f"{len(told)} calls were interrupted, then none"
        assert set(told) == {"LEFT 0\n"}
        os.killpg(child.pid, signal.SIGKILL)
        reader.join(60)
