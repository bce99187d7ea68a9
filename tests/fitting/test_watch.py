"""How a fit is stopped: by time, by Ctrl-C, by a callback."""

import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
from bounded import finish, started

import swallowtail as st
from swallowtail import (
    Rotation,
    fit_rotation,
    random_orthogonal,
    random_symmetric,
)
from swallowtail.fitting import Stop, fit_symmetric, quality
from swallowtail.fitting.methods.pairs import align_pairs
from swallowtail.fitting.watch import Watch, in_time
from swallowtail.metrics import error_angle

N = 12


H = st.random_symmetric(N, 3, 0)


QUICK = {"wiring": "pairs", "n_rotations": 20}


@pytest.mark.parametrize(
    "arguments", [{"depth": 4}, {"method": "sgd", "epochs": 10**6}, {"wiring": "butterfly", "depth": 4}]
)
def test_max_seconds(arguments):
    fit_symmetric(H, **arguments | ({"epochs": 1} if "epochs" in arguments else {}))  # compiled
    n = 64 if "epochs" in arguments else 256  # Algorithm 1 looks at the clock once an epoch
    A = st.random_symmetric(n, 20, 0)
    begin = time.process_time()
    result = fit_symmetric(A, max_seconds=0.2, **arguments)
    assert time.process_time() - begin < 3.0
    assert result.status == "time"
    assert result.angle < error_angle(A, np.eye(n))


INTERRUPTED = """
    import signal
    import swallowtail as st
    signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started the tests may ignore it
    H = st.random_symmetric(64, 20, 0)
    for arguments in ({"method": "pairs", "cycles": 10**6}, {"method": "sgd", "epochs": 10**6}):
        st.fit_symmetric(H, max_seconds=0.01, **arguments)  # compiled
        print("ready", flush=True)
        result = st.fit_symmetric(H, **arguments)
        print(result.status, result.angle, st.error_angle(H, result.operator, seed=1), flush=True)
    try:
        print("waiting", flush=True)
        while True:
            pass
    except KeyboardInterrupt:
        print("the old handler is back")
"""


def test_ctrl_c_keeps_the_best_and_gives_the_handler_back():
    code = textwrap.dedent(INTERRUPTED)
    with started([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        for _ in ("pairs", "sgd"):
            assert process.stdout.readline() == "ready\n"
            time.sleep(0.5)
            process.send_signal(signal.SIGINT)
            status, angle, true_angle = process.stdout.readline().split()
            assert status == "interrupted"
            assert float(angle) == pytest.approx(float(true_angle), abs=1.0)
            assert float(angle) < 60
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "the old handler is back\n"


def test_no_signal_handler_outside_the_main_thread():
    results = []
    finish([lambda: results.append(fit_symmetric(H, **QUICK))])
    assert results[0].angle == fit_symmetric(H, **QUICK).angle


def dense(fit):
    return Rotation(fit.wiring, fit.angles).to_dense().numpy()


def test_time_and_interruption_keep_the_best():
    R = random_orthogonal(48, 0)
    result = fit_rotation(R, max_seconds=1e-6)
    assert result.status == "time"
    assert result.angle < 90

    def stop(stage, done, objective):
        raise Stop

    fit = align_pairs(R, 100, callback=stop)
    assert np.linalg.norm(dense(fit) - R) ** 2 / 48 == pytest.approx(fit.history[-1][2])


def test_max_seconds_while_products_are_made():
    """The time limit may end among the probes: H is completed from the products there are."""
    A, calls = st.random_symmetric(1100, 5, 0), []

    def slow(X):
        calls.append(X.shape[1])
        time.sleep(0.1)
        return A @ X

    fit_symmetric(lambda X: A @ X, 1100, max_products=4)  # compiled
    calls.clear()
    result = fit_symmetric(slow, 1100, max_seconds=0.25)
    assert result.status == "time"
    assert 1 <= len(calls) <= 4
    assert result.n_products == sum(calls) < 64
    assert result.angle_estimate[1:] == (0.0, 180.0)


def test_stop_keeps_the_best_of_a_hybrid():
    calls = []

    def stop(stage, done, objective):
        calls.append(objective)
        if len(calls) == 20:
            raise Stop

    result = fit_symmetric(H, method="hybrid", callback=stop)
    assert result.status == "stopped"
    assert result.relative_error < 1


def test_no_products_are_asked_for_that_there_is_no_time_to_use():
    """Between two products 0.1 s passed, of a limit of 1 s: three times as long is kept for what comes after."""
    watch = Watch(progress=False, max_seconds=1.0)
    product, callback = in_time(lambda X: time.sleep(0.3) or X, watch)
    watch.begin -= 0.1  # our own work
    product(np.ones(2))
    callback("probe", 1, float("nan"))
    callback("grow", 1, 0.5)
    watch.limit -= 0.5
    callback("grow", 2, 0.5)
    with pytest.raises(Stop):
        callback("probe", 2, float("nan"))
    assert watch.status == "time"


@pytest.mark.parametrize("arguments", [{"effort": "quick"}, {}, {"method": "grouped"}])
def test_a_limit_holds_at_every_effort(arguments):
    """The least time of three: a busy machine may add to any of them."""
    points = np.random.default_rng(0).random((600, 2))
    H = np.exp(-np.linalg.norm(points[:, None] - points, axis=-1) / 0.3)
    fit_symmetric(H[:40, :40], max_seconds=20, **arguments)  # compiled beforehand
    times = []
    for _ in range(3):
        begin = time.perf_counter()
        fit_symmetric(H, max_seconds=0.2, **arguments)
        times.append(time.perf_counter() - begin)
        if times[-1] < 0.5:
            break
    assert min(times) < 0.5


def test_rivals_wait_for_no_one(monkeypatch):
    monkeypatch.setattr(quality, "SMALL", 8)
    H = random_symmetric(16, 3, seed=0)
    with Watch(False, 1e-9) as watch, pytest.raises(Stop):
        watch.stop_if_late()
    late = fit_symmetric(H, max_seconds=60)
    assert late.rivals
    monkeypatch.setattr(Watch, "stop_if_late", lambda self: (_ for _ in ()).throw(Stop))
    late = fit_symmetric(H, max_seconds=60)
    assert late.status == "converged"
    assert late.rivals == []
    assert "as time was up" in late.message
