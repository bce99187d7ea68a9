"""Ctrl-C while compiled functions run."""

import signal

import numpy as np
import pytest

from swallowtail.kernels.cpu import interrupts, jit


def add_often(x, times):
    for _ in range(times):
        for i in range(len(x)):
            x[i] += 1e-9
    return x


@pytest.fixture(scope="module")
def function():
    compiled = jit.njit(nogil=True)(add_often)
    compiled(np.ones(4), 1)
    return compiled


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="POSIX timers")
def test_an_interrupt_while_an_array_is_handed_back_is_no_other_error(function):
    def interrupt(number, frame):
        raise KeyboardInterrupt

    def call():
        signal.setitimer(signal.ITIMER_REAL, 0.001)
        try:
            function(x, 3000)  # some twenty milliseconds
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    handler, x = signal.signal(signal.SIGALRM, interrupt), np.ones(100_000)
    try:
        for _ in range(20):
            with pytest.raises(KeyboardInterrupt):
                call()
    finally:
        signal.signal(signal.SIGALRM, handler)


def test_what_returns_a_number_has_no_guard(function):
    number = jit.njit()(lambda x: x[0])
    number(np.ones(2))
    assert type(number).__call__ is not type(function).__call__


def test_errors_of_other_causes_stay():
    interrupts.raise_cause(SystemError("its own"))
