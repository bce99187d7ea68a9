"""The counter of threads at work: nothing begins after it is closed, and closing waits for what began."""

import threading
import time

import numpy as np
from bounded import finish

from swallowtail.kernels.cpu.codegen.counter import CLOSED, add, close


def test_additions_from_several_threads_all_count():
    counter = np.zeros(1, np.int64)

    def work():
        for _ in range(5000):
            add(counter.ctypes.data, 1)

    finish([work] * 4)
    assert counter[0] == 20000


def test_closing_waits_for_those_at_work():
    counter = np.zeros(1, np.int64)
    at, ended = counter.ctypes.data, []
    assert add(at, 1) < CLOSED

    def end():
        time.sleep(0.05)
        ended.append(True)
        add(at, -1)

    thread = threading.Thread(target=end, daemon=True)
    thread.start()
    close(at)
    assert ended
    thread.join(60)
    assert add(at, 1) >= CLOSED, "a thread may not begin any more"
