"""Recorded calls against the functions they were recorded from; kernels here copy and add memory of the CPU."""

from __future__ import annotations

import ctypes

import pytest
import torch

pytest.importorskip("triton", reason="the GPU back end needs Triton")

from swallowtail.kernels.gpu import launch as launching
from swallowtail.kernels.gpu import replay
from swallowtail.kernels.gpu.replay import ATTEMPTS, Replay, replayed

N = 64
# Taken before the tests' own versions, which fill what they allocate: a recording would see that.
empty, empty_like = torch.empty, torch.empty_like


def add(stream, x, y, out):
    """out = x + y for N float32 numbers at three addresses."""
    a, b, c = ((ctypes.c_float * N).from_address(at) for at in (x, y, out))
    for i in range(N):
        c[i] = a[i] + b[i]


def launch_add(x, y, out):
    add(0, x.data_ptr(), y.data_ptr(), out.data_ptr())
    if launching.watcher is not None:
        launching.watcher(add, (x, y, 7, out))


@pytest.fixture(autouse=True)
def a_gpu(monkeypatch):
    monkeypatch.setattr(replay, "runs_cuda", lambda device: True)
    monkeypatch.setattr(replay, "_current_device", lambda: -1)
    monkeypatch.setattr(replay, "current_stream", lambda device: 0)


def numbers(seed):
    return torch.randn(N, generator=torch.Generator().manual_seed(seed))


TABLE = torch.arange(N, dtype=torch.float32)


def through_scratch(x, y):
    """(x + y, x + (x + y) + table): with a scratch buffer, an input in a view, a table made earlier, two results."""
    first, scratch, second = empty_like(x), empty(2, N), empty(2, N // 2)
    launch_add(x.view(2, -1), y, first)
    launch_add(x, first, scratch[1])
    launch_add(scratch[1], TABLE, second)
    return first, second.view(N)


def test_a_recording_gives_the_same_with_other_numbers():
    store = {}
    for seed in range(4):
        x, y = numbers(seed), numbers(seed + 10)
        results = replayed(store, "key", through_scratch, x, y)
        torch.testing.assert_close(results[0], x + y)
        torch.testing.assert_close(results[1], 2 * x + y + TABLE)
        assert type(store["key"]) is Replay
    assert results[0].data_ptr() % 64 == 0
    again = replayed(store, "key", through_scratch, x, y)
    assert all(a.data_ptr() != b.data_ptr() for a, b in zip(results, again, strict=True))


def test_the_function_is_not_called_again():
    store, calls = {}, []

    def function(x, y):
        calls.append(1)
        return through_scratch(x, y)

    for _ in range(5):
        replayed(store, "key", function, numbers(1), numbers(2))
    assert len(calls) == 1


def test_none_stands_for_no_tensor():
    store = {}

    def function(x, y):
        out = empty_like(x)
        launch_add(x, x if y is None else y, out)
        return out

    for _ in range(3):
        torch.testing.assert_close(
            replayed(store, "two", function, numbers(1), numbers(2)), numbers(1) + numbers(2)
        )
        torch.testing.assert_close(replayed(store, "one", function, numbers(1), None), 2 * numbers(1))
    assert all(type(kept) is Replay for kept in store.values())


def operation(x, out):
    return x * 2


def in_place(x, out):
    out.zero_()
    return out


def with_out(x, out):
    return torch.add(x, x, out=out)


def copied(x, out):
    return x.view(8, 8).mT.contiguous()


def reads(x, out):
    assert float(x[0]) != 0
    return out


@pytest.mark.parametrize("something", [operation, in_place, with_out, copied, reads])
def test_a_function_that_does_more_is_never_replayed(something):
    store, calls = {}, []

    def function(x, y):
        calls.append(1)
        out = empty_like(x)
        launch_add(x, y, out)
        something(x, empty_like(x))
        return out

    for seed in range(ATTEMPTS + 2):
        x, y = numbers(seed), numbers(seed + 1)
        torch.testing.assert_close(replayed(store, "key", function, x, y), x + y)
    assert len(calls) == ATTEMPTS + 2


def test_tables_that_a_first_call_makes_do_not_stop_the_second():
    store, tables = {}, []

    def function(x):
        if not tables:
            tables.append(torch.arange(float(N)))
        out = empty_like(x)
        launch_add(x, tables[0], out)
        return out

    for seed in range(3):
        torch.testing.assert_close(replayed(store, "key", function, numbers(seed)), numbers(seed) + TABLE)
    assert type(store["key"]) is Replay


def test_tensors_off_the_boundary_go_to_the_function():
    store = {}
    for _ in range(2):
        x, y = torch.randn(N + 1)[1:], numbers(2)
        torch.testing.assert_close(replayed(store, "key", through_scratch, x, y)[0], x + y)
        assert not store
    replayed(store, "key", through_scratch, numbers(1), numbers(2))
    x = torch.randn(N + 1)[1:]
    torch.testing.assert_close(replayed(store, "key", through_scratch, x, y)[1], 2 * x + y + TABLE)


def test_a_result_that_is_an_input_is_not_recorded():
    store = {}

    def function(x, y):
        launch_add(x, y, x)
        return x

    x = numbers(1)
    for times in (1, 2, 3):
        replayed(store, "key", function, x, numbers(2))
        torch.testing.assert_close(x, numbers(1) + times * numbers(2))


def test_kinds_are_forgotten_at_the_limit(monkeypatch):
    monkeypatch.setattr(replay, "KINDS", 3)
    store = {}
    for key in range(10):
        replayed(store, key, through_scratch, numbers(1), numbers(2))
        assert len(store) <= 3
