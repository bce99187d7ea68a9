"""fit_symmetric: everything it can start from, everything it must refuse, and the record it returns."""

import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from scipy.sparse.linalg import LinearOperator, aslinearoperator

import swallowtail as st
from swallowtail.fitting import FitResult, fit_symmetric
from swallowtail.fitting.budget import default_budget
from swallowtail.metrics import error_angle

N = 12
H = st.random_symmetric(N, 3, 0)
QUICK = {"wiring": "pairs", "n_rotations": 20}


def relative_error(A, result):
    B = result.operator.to_dense().double().numpy()
    scale = np.abs(A).max()
    return np.linalg.norm(A / scale - B / scale) / np.linalg.norm(A / scale)


def asymmetric(amount=0.3):
    A = np.random.default_rng(1).standard_normal((N, N))
    return H + amount * (A - A.T)


class Counted:
    """Products with a matrix, counted."""

    def __init__(self, A):
        self.A, self.columns = A, 0

    def __call__(self, X):
        self.columns += X.shape[1]
        return self.A @ X


# What it can start from.

SOURCES = {
    "array": lambda: H,
    "list": lambda: H.tolist(),
    "read-only": lambda: np.broadcast_to(H, H.shape),
    "Fortran order": lambda: np.asfortranarray(H),
    "tensor": lambda: torch.from_numpy(H),
    "tensor with gradient": lambda: torch.from_numpy(H.copy()).requires_grad_(),
    "csr": lambda: sp.csr_array(H),
    "coo matrix": lambda: sp.coo_matrix(H),
    "LinearOperator": lambda: aslinearoperator(H),
    "LinearOperator with matvec only": lambda: LinearOperator((N, N), matvec=lambda x: H @ x, dtype=float),
    "function": lambda: lambda X: H @ X,
    "function that returns a tensor": lambda: lambda X: torch.from_numpy(H @ X),
    "pairs": lambda: (np.eye(N), H.copy()),
    "pairs, more than n": lambda: (X := np.random.default_rng(0).standard_normal((N, 30)), H @ X),
}


@pytest.mark.parametrize("name", SOURCES)
def test_every_source_gives_the_same_fit(name):
    source = SOURCES[name]()
    result = fit_symmetric(source, N if callable(source) and not hasattr(source, "shape") else None, **QUICK)
    assert isinstance(result, FitResult)
    assert isinstance(result.operator, st.SymmetricOperator)
    assert result.operator.dtype == torch.float64
    assert result.operator.rotation.n_rotations <= 20
    assert relative_error(H, result) == pytest.approx(relative_error(H, fit_symmetric(H, **QUICK)), abs=0.02)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_tensors_keep_their_dtype_and_device(dtype):
    A = torch.from_numpy(H).to(dtype)
    result = fit_symmetric((A + A.T) / 2, **QUICK)
    assert result.operator.dtype == result.operator.rotation.angles.dtype == dtype
    assert result.operator.device == A.device
    assert isinstance(result.operator @ A, torch.Tensor)
    assert not result.operator.eigenvalues.requires_grad
    assert relative_error(H, result) < 0.2


@pytest.mark.gpu
def test_cuda_in_cuda_out():
    result = fit_symmetric(torch.from_numpy(H).float().cuda(), **QUICK)
    assert result.operator.device.type == "cuda"
    assert result.operator.dtype == torch.float32


@pytest.mark.parametrize(
    "make", [lambda: H.astype(np.float32), lambda: aslinearoperator(H.astype(np.float32))]
)
def test_float32_numpy_gives_a_float32_operator(make):
    assert fit_symmetric(make(), **QUICK).operator.dtype == torch.float32


def test_operators_of_linear_operator():
    linear_operator = pytest.importorskip("linear_operator")
    source = linear_operator.to_linear_operator(torch.from_numpy(H).float())
    result = fit_symmetric(source, **QUICK)
    assert result.operator.dtype == torch.float32
    assert result.n_products == N
    assert relative_error(H, result) < 0.15


def test_own_operators():
    own = fit_symmetric(H, **QUICK).operator
    result = fit_symmetric(own, n_rotations=40)
    assert error_angle(own, result.operator) < 1.0


def test_integers_are_numbers():
    result = fit_symmetric(np.array([[2, 1], [1, 2]]))
    np.testing.assert_allclose(np.sort(result.operator.eigenvalues), [1.0, 3.0])


def test_few_products_are_a_hard_limit():
    A = st.random_symmetric(64, 5, 1)
    for m in (1, 7, 40):
        product = Counted(A)
        result = fit_symmetric(product, 64, max_products=m, wiring="pairs")
        assert product.columns == result.n_products == m
        assert result.estimated
        assert "estimate" in result.message
        assert "angle (estimate)" in str(result)


def test_enough_products_are_the_matrix_itself():
    product = Counted(H)
    result = fit_symmetric(product, N, **QUICK)
    assert product.columns == result.n_products == N
    assert not result.estimated


def test_large_sparse_input_stays_sparse(monkeypatch):
    from swallowtail.fitting import inputs as interfaces

    monkeypatch.setattr(interfaces, "DENSE_SPARSE", 32)
    A = sp.csr_array(
        sp.diags_array([np.full(63, -1.0), np.full(64, 2.0), np.full(63, -1.0)], offsets=[-1, 0, 1])
    )
    result = fit_symmetric(A, n_rotations=64, max_products=16)
    assert result.n_products == 16
    assert error_angle(A, result.operator) < 60
    with pytest.raises(ValueError, match="symmetric"):
        fit_symmetric(sp.csr_array(sp.triu(A)))
    with pytest.raises(ValueError, match="square"):
        fit_symmetric(A[:, :40])


def test_sparse_input_has_itself_for_a_rival():
    result = fit_symmetric(sp.csr_array(np.diag(np.full(7, 0.5), 1) + np.diag(np.full(7, 0.5), -1)))
    assert any("CSR" in rival.name for rival in result.rivals)
    assert "The matrix is sparse" in result.message


# What it refuses, and how.

BAD = {
    "NaN": (lambda: np.where(np.eye(N) > 0, np.nan, H), ValueError, "12 of 144 NaN"),
    "infinite": (lambda: np.where(np.eye(N) > 0, np.inf, H), ValueError, "12 of 144 NaN or infinite"),
    "not square": (lambda: H[:, :5], ValueError, r"square.*\(12, 5\)"),
    "a vector": (lambda: np.ones(3), ValueError, "square"),
    "a batch": (lambda: torch.zeros(2, 3, 3), ValueError, "square"),
    "not symmetric": (asymmetric, ValueError, "symmetrize=True"),
    "complex": (lambda: H + 0j, TypeError, "real part"),
    "complex tensor": (lambda: torch.from_numpy(H + 0j), TypeError, "real part"),
    "empty": (lambda: np.zeros((0, 0)), ValueError, "n ≥ 1"),
    "text": (lambda: "H", TypeError, "got str"),
    "nothing": (lambda: None, TypeError, "got NoneType"),
    "sparse NaN": (lambda: sp.csr_array(np.diag([1.0, np.nan])), ValueError, "finite"),
    "sparse complex": (lambda: sp.csr_array(H + 0j), TypeError, "real"),
    "sparse not square": (lambda: sp.csr_array(H[:, :5]), ValueError, "square"),
    "sparse empty": (lambda: sp.csr_array((0, 0)), ValueError, "n ≥ 1"),
    "sparse not symmetric": (lambda: sp.csr_array(asymmetric()), ValueError, "symmetrize=True"),
    "complex operator": (lambda: aslinearoperator(H + 0j), TypeError, "real part"),
    "operator that is not square": (lambda: aslinearoperator(H[:, :5]), ValueError, "square"),
    "pairs of two shapes": (lambda: (H, H[:5]), ValueError, r"\(12, 12\) and \(5, 12\)"),
    "pairs of zeros": (lambda: (np.zeros((4, 2)), np.zeros((4, 2))), ValueError, "2 zero columns"),
    "pairs with NaN": (lambda: (H, H * np.nan), ValueError, "Y: expected finite"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_matrices(name):
    make, error, message = BAD[name]
    with pytest.raises(error, match=message):
        fit_symmetric(make())


@pytest.mark.parametrize("max_products", [None, 4])
@pytest.mark.parametrize(
    ("product", "error", "message"),
    [
        (lambda X: X[:5], ValueError, r"expected.*shape.*got \(5, "),
        (lambda X: X[:, 0], ValueError, r"got \(12,\)"),
        (lambda X: X.T[:2], ValueError, "shape"),
        (lambda X: X * np.nan, ValueError, "NaN"),
        (lambda X: X * 1j, TypeError, "complex"),
        (lambda X: None, TypeError, "NoneType"),
        (lambda X: 1 / 0, ZeroDivisionError, "division"),  # the user's own error is the user's to see
    ],
)
def test_bad_product_functions(product, error, message, max_products):
    with pytest.raises(error, match=message):
        fit_symmetric(product, N, max_products=max_products)


@pytest.mark.parametrize("max_products", [None, 6])
def test_asymmetric_products_are_fitted_with_a_warning_that_says_by_how_much(max_products):
    A = asymmetric(0.1)
    with pytest.warns(UserWarning, match=r"antisymmetric part 0\.\d+ of the whole") as caught:
        result = fit_symmetric(lambda X: A @ X, N, max_products=max_products, **QUICK)
    assert caught[0].filename == __file__
    if max_products is None:
        assert relative_error(H, result) < 0.2


def test_symmetrize_is_the_way():
    A = asymmetric()
    result = fit_symmetric(A, symmetrize=True, **QUICK)
    assert relative_error((A + A.T) / 2, result) == pytest.approx(result.relative_error, rel=1e-6)
    sparse = fit_symmetric(sp.csr_array(A), symmetrize=True, **QUICK)
    assert relative_error((A + A.T) / 2, sparse) < 0.2


def test_rounding_is_no_asymmetry():
    A = H.astype(np.float32).astype(np.float64)
    A[0, 1] *= 1 + 1e-15
    fit_symmetric(A, **QUICK)
    noisy = torch.from_numpy(H).float()
    noisy[0, 1] *= 1 + 1e-6
    fit_symmetric(noisy, **QUICK)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"n_rotations": -1}, ValueError, "n_rotations: expected an integer ≥ 0, got -1"),
        ({"n_rotations": 2.5}, TypeError, "n_rotations"),
        ({"n_rotations": True}, TypeError, "n_rotations"),
        ({"depth": 0}, ValueError, "depth"),
        ({"max_products": 0}, ValueError, "max_products"),
        ({"max_seconds": 0}, ValueError, "max_seconds"),
        ({"max_seconds": float("nan")}, ValueError, "max_seconds"),
        ({"target_angle": 0}, ValueError, "target_angle"),
        ({"target_angle": 90.5}, ValueError, "target_angle"),
        ({"target_angle": float("nan")}, ValueError, "target_angle"),
        ({"method": "magic"}, ValueError, "method: expected one of 'auto'"),
        ({"target": "magic"}, ValueError, "target: expected one of 'matrix'"),
        ({"wiring": "magic"}, ValueError, "wiring: expected one of 'auto'"),
        ({"wiring": st.Butterfly(8, 1)}, ValueError, "n = 12"),
        ({"wiring": st.Pairs(N, [[(0, 1)]])}, ValueError, "Butterfly"),
        ({"n": 5}, ValueError, "n: expected 12"),
        ({"cycles": 3}, TypeError, "cycles"),
        ({"method": "pairs", "cycle": 3}, TypeError, "cycle"),
        ({"method": "sgd", "target": "likelihood"}, ValueError, "target='matrix'"),
    ],
)
def test_arguments_that_make_no_sense(arguments, error, message):
    with pytest.raises(error, match=message):
        fit_symmetric(H, **arguments)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({}, TypeError, "n: expected the dimension"),
        ({"n": 0}, ValueError, "n: expected an integer ≥ 1"),
        ({"n": N, "max_products": 4, "target": "inverse"}, ValueError, "target='matrix'"),
        ({"n": N, "max_products": 4, "wiring": "butterfly"}, ValueError, "method='sgd'"),
    ],
)
def test_arguments_that_products_cannot_serve(arguments, error, message):
    with pytest.raises(error, match=message):
        fit_symmetric(lambda X: H @ X, **arguments)


def test_targets_that_the_matrix_cannot_serve():
    with pytest.raises(ValueError, match="invertible"):
        fit_symmetric(np.ones((4, 4)), target="inverse")
    with pytest.raises(ValueError, match="invertible"):
        fit_symmetric(np.zeros((4, 4)), target="inverse")
    with pytest.raises(ValueError, match="negative diagonal"):
        fit_symmetric(-np.eye(3), target="likelihood")


# Odd matrices that work.

ODD = {
    "1 × 1": np.array([[2.5]]),
    "constant": np.full((N, N), 3.0),
    "multiple of 1": 3.0 * np.eye(N),
    "diagonal": np.diag(np.arange(N) - 4.0),
    "negative": -np.eye(N) - np.ones((N, N)),
    "2 × 2": np.array([[0.0, 1.0], [1.0, 0.0]]),
}


@pytest.mark.parametrize("source", ["entries", "products"])
@pytest.mark.parametrize("name", ODD)
def test_simple_matrices_are_exact(name, source):
    A = ODD[name]
    result = fit_symmetric(
        A if source == "entries" else lambda X: A @ X, None if source == "entries" else len(A)
    )
    assert relative_error(A, result) < 1e-6
    assert result.angle < 1e-3
    assert result.status == "exact"
    assert result.relative_error == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("method", ["auto", "pairs", "butterfly", "sgd"])
def test_zero(method):
    result = fit_symmetric(np.zeros((5, 5)), method=method)
    assert torch.equal(result.operator.eigenvalues, torch.zeros(5, dtype=torch.float64))
    assert result.angle == result.relative_error == 0.0
    str(result)


@pytest.mark.parametrize("rank", [1, 3])
def test_rank_deficient(rank):
    V = np.random.default_rng(0).standard_normal((N, rank))
    result = fit_symmetric(V @ V.T, n_rotations=66)
    assert result.relative_error < 0.05
    assert torch.isfinite(result.operator.eigenvalues).all()


@pytest.mark.parametrize("scale", [1e-310, 1e-30, 1e30, 1e150])
@pytest.mark.parametrize("arguments", [{}, {"method": "sgd", "epochs": 2}, {"max_products": 6, "n": N}])
def test_scale_is_no_matter(scale, arguments):
    make = (lambda A: lambda X: A @ X) if "max_products" in arguments else (lambda A: A)
    plain, scaled = fit_symmetric(make(H), **arguments), fit_symmetric(make(H * scale), **arguments)
    assert scaled.angle == pytest.approx(plain.angle, rel=0.1, abs=0.3)
    assert relative_error(H * scale, scaled) == pytest.approx(relative_error(H, plain), rel=0.1, abs=0.01)
    assert np.isfinite([rival.angle for rival in scaled.rivals]).all()


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_float32_at_the_edge_of_its_range(scale):
    result = fit_symmetric((H * scale).astype(np.float32), **QUICK)
    assert torch.isfinite(result.operator.eigenvalues).all()
    assert relative_error(H * scale, result) < 0.2


# How it stops.


def test_budget_is_kept():
    for K in (0, 1, 17, 40):
        assert fit_symmetric(H, n_rotations=K).operator.rotation.n_rotations <= K
    assert fit_symmetric(H).operator.rotation.n_rotations <= default_budget(N) == 24
    assert default_budget(64, 2) == 384


def test_a_huge_budget_ends():
    result = fit_symmetric(H, n_rotations=10**6)
    assert result.status == "exact"
    assert result.operator.rotation.n_rotations < 2000


@pytest.mark.parametrize("angle", [20.0, 8.0])
def test_target_angle_takes_as_few_rotations_as_it_needs(angle):
    A = st.random_symmetric(64, 5, 3)
    result = fit_symmetric(A, target_angle=angle)
    assert result.angle <= angle
    assert result.angle > 0.6 * angle
    fewer = fit_symmetric(A, wiring="pairs", n_rotations=int(0.6 * result.operator.rotation.n_rotations))
    assert fewer.angle > angle


def test_target_angle_out_of_reach_says_so():
    result = fit_symmetric(H, target_angle=1.0, n_rotations=3)
    assert result.status == "budget"
    assert "1.0° was not reached" in result.message


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
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
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
        assert process.communicate(timeout=60)[0] == "the old handler is back\n"
    finally:
        process.kill()
        process.wait()


def test_no_signal_handler_outside_the_main_thread():
    import threading

    results = []
    thread = threading.Thread(target=lambda: results.append(fit_symmetric(H, **QUICK)))
    thread.start()
    thread.join()
    assert results[0].angle == fit_symmetric(H, **QUICK).angle


# Targets, wirings, the record.


def test_inverse_target_is_better_at_the_inverse():
    A = st.random_symmetric(64, 64, 5) + 0.01 * np.eye(64)
    exact = np.linalg.inv(A)
    plain, aimed = (fit_symmetric(A, target=target, wiring="pairs") for target in ("matrix", "inverse"))
    angles = [error_angle(exact, result.operator.inverse(), seed=1) for result in (plain, aimed)]
    assert angles[1] < 0.9 * angles[0]
    assert aimed.angle == pytest.approx(angles[1], abs=0.5)
    assert aimed.target == "inverse"
    assert "of the inverse" in aimed.message


def test_likelihood_target_is_better_in_likelihood():
    A = st.random_symmetric(64, 5, 5) + 0.001 * np.eye(64)
    plain, aimed = (fit_symmetric(A, target=target, wiring="pairs") for target in ("matrix", "likelihood"))
    assert float(aimed.operator.logdet()) < float(plain.operator.logdet())
    assert aimed.target == "likelihood"


@pytest.mark.parametrize("depth", [1, 2])
def test_butterfly_wiring(depth):
    for wiring in ("butterfly", st.Butterfly(N, depth)):
        result = fit_symmetric(H, wiring=wiring, depth=depth)
        assert result.operator.rotation.wiring == st.Butterfly(N, depth)
        assert result.method in ("butterfly", "recovery")


def test_a_matrix_in_the_class_is_recovered():
    Q = st.Rotation.random(32, seed=3).to(dtype=torch.float64)
    A = st.SymmetricOperator(Q, torch.linspace(-1, 2, 32, dtype=torch.float64)).to_dense().numpy()
    result = fit_symmetric((A + A.T) / 2)
    assert (result.method, result.status) == ("recovery", "exact")
    assert result.relative_error < 1e-6


def test_auto_is_the_better_of_its_forms():
    kernel = np.exp(-np.abs(np.subtract.outer(np.arange(32), np.arange(32))) / 8.0)
    best = fit_symmetric(kernel)
    alone = [fit_symmetric(kernel, wiring=wiring).relative_error for wiring in ("butterfly", "pairs")]
    assert best.relative_error <= min(alone) * 1.02
    assert any("as fitted" in rival.name for rival in best.rivals)


def test_the_same_seed_gives_the_same_bits():
    one, two = (fit_symmetric(H, seed=3) for _ in range(2))
    assert torch.equal(one.operator.eigenvalues, two.operator.eigenvalues)
    assert torch.equal(one.operator.rotation.angles, two.operator.rotation.angles)


def test_the_record():
    A = st.random_symmetric(64, 5, 2)
    result = fit_symmetric(A, n_rotations=192)
    low, high = result.angle_interval
    assert low < result.angle < high < low + 1
    assert result.angle == pytest.approx(error_angle(A, result.operator, seed=7), abs=0.5)
    assert result.relative_error == pytest.approx(relative_error(A, result), rel=1e-9)
    assert (result.n_products, result.status, result.target) == (0, "converged", "matrix")
    assert result.floats == 192 + 64
    assert result.bytes == 4 * 256 + 4 * 192
    assert result.seconds > 0
    assert all(len(step) == 3 for step in result.history)
    assert result.history[-1][2] == pytest.approx(result.relative_error**2, rel=1e-6)
    with pytest.raises(AttributeError):
        result.angle = 0.0


def test_the_printed_table():
    result = fit_symmetric(st.random_symmetric(64, 5, 2), n_rotations=192)
    lines = str(result).splitlines()
    assert lines[0].startswith(f"{result.method}: angle {result.angle:.2f}° (")
    assert lines[1].split() == ["form", "angle", "rel.", "error", "floats", "bytes", "mult-adds", "equal"]
    assert lines[2].startswith("this fit")
    assert len(lines) == 4 + len(result.rivals)
    assert lines[-1] == result.message
    for rival in result.rivals:
        assert any(line.startswith(rival.name) and line.endswith(rival.equal) for line in lines)


def test_plots(tmp_path):
    pytest.importorskip("matplotlib")
    for number, result in enumerate(
        (fit_symmetric(H), fit_symmetric(np.eye(2)), fit_symmetric(H + np.eye(N), target="likelihood"))
    ):
        path = tmp_path / f"{number}.png"
        result.plot(path)
        assert path.read_bytes()[:4] == b"\x89PNG"


def test_a_simpler_form_that_wins_is_named():
    V = np.linalg.qr(np.random.default_rng(0).standard_normal((64, 3)))[0]
    A = 0.2 * np.eye(64) + V @ np.diag([3.0, 2.0, 1.0]) @ V.T
    result = fit_symmetric(A, n_rotations=120)  # 186 would be exact
    assert "Something simpler wins" in result.message
    winner = min(
        (rival for rival in result.rivals if rival.name.startswith("c·I")), key=lambda rival: rival.angle
    )
    assert winner.angle < 1e-3 < result.angle
    assert winner.name in result.message
    products = fit_symmetric(lambda X: A @ X, 64, n_rotations=120, max_products=24)
    assert "Something simpler wins" in products.message


def test_a_tie_is_called_a_tie():
    result = fit_symmetric(2.0 * np.eye(8))
    assert result.message.startswith("No better than")


def test_a_fit_that_wins_says_so():
    A = st.random_symmetric(256, 128, 3)
    result = fit_symmetric(A, wiring="pairs")
    ranked = [rival for rival in result.rivals if {"floats", "multiply-adds"} & set(rival.equal.split(", "))]
    assert ranked
    assert all(rival.angle > result.angle for rival in ranked)
    assert "at equal floats" not in result.message or "Better" in result.message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"wiring": "butterfly", "n_rotations": 5}, "n_rotations: expected 12"),
        ({"method": "sgd", "n_rotations": 5}, "n_rotations: expected 12"),
        ({"method": "recovery", "depth": 2, "n_rotations": 12}, "n_rotations: expected 24"),
        ({"method": "sgd", "wiring": "pairs"}, "fixed wiring"),
        ({"method": "pairs", "wiring": "butterfly"}, "chooses pairs"),
        ({"method": "hybrid", "wiring": st.Butterfly(8)}, "chooses pairs"),
        ({"target_angle": 0}, "above 0 and below 90"),
    ],
)
def test_requests_that_contradict_themselves(arguments, message):
    with pytest.raises(ValueError, match=message):
        fit_symmetric(st.random_symmetric(8, 2, 0), **arguments)


def test_what_goes_together_is_accepted():
    A = st.random_symmetric(8, 2, 0)
    for arguments in (
        {"wiring": "butterfly"},
        {"method": "sgd", "epochs": 1},
        {"method": "sgd", "wiring": st.Butterfly(8)},
    ):
        assert fit_symmetric(A, n_rotations=12, **arguments).operator.rotation.n_rotations == 12


def test_an_estimate_without_products_of_its_own_claims_no_interval():
    """On a flat spectrum few products say little, and what they say of themselves is too good."""
    A = np.cov(np.random.default_rng(0).standard_normal((40, 80)))
    for source in (lambda X: A @ X, (np.eye(40)[:, :12], A[:, :12])):
        result = fit_symmetric(source, None if isinstance(source, tuple) else 40, max_products=12)
        assert result.angle_interval == (0.0, 180.0)
        assert "unconfirmed" in str(result)
