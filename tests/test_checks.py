"""Every bad input: the right kind of error, saying what was expected, what came and what to try."""
# ruff: noqa: E501 (a table reads best with a row on a line)

import numpy as np
import pytest
import torch

from swallowtail import (
    ArgumentError,
    Butterfly,
    LowRank,
    Pairs,
    Rotation,
    SymmetricOperator,
    checks,
    error_angle,
    fit_symmetric,
    kernels,
    nn,
    ops,
    save,
    select_backend,
    use_backend,
)

Q = Rotation.random(8, seed=0)
H = SymmetricOperator(Q, torch.ones(8))
W, A = Q.wiring, Q.angles
x = torch.ones(8)

BAD = [
    # what, call, kind of error, the words of the message that matter
    ("n zero", lambda: Butterfly(0), ValueError, "n: expected an integer ≥ 1, got 0"),
    ("n negative", lambda: Pairs(-3, []), ValueError, "n: expected an integer ≥ 1, got -3"),
    ("n a float", lambda: Butterfly(8.0), TypeError, "n: expected an integer ≥ 1, got 8.0"),
    ("n a string", lambda: Rotation.random("8"), TypeError, "n: expected an integer ≥ 1, got '8'"),
    ("n a bool", lambda: Butterfly(True), TypeError, "n: expected an integer ≥ 1, got True"),
    ("depth zero", lambda: Butterfly(8, 0), ValueError, "depth: expected an integer ≥ 1, got 0"),
    ("depth none", lambda: Rotation.identity(8, depth=None), TypeError, "depth: expected an integer ≥ 1, got None"),
    ("not a power of two", lambda: Rotation.hadamard(12), ValueError, "n: expected a power of two .*, got 12"),
    ("coordinate twice", lambda: Pairs(4, [[(0, 1), (1, 2)]]), ValueError, "layer 0: expected disjoint pairs, got coordinate 1 2 times"),
    ("coordinate with itself", lambda: Pairs(4, [[], [(3, 3)]]), ValueError, "layer 1: expected disjoint pairs, got coordinate 3 2 times"),
    ("coordinate too large", lambda: Pairs(4, [[(0, 4)]]), ValueError, "layer 0: expected coordinates in 0 … 3, got 4"),
    ("coordinate negative", lambda: Pairs(4, [[(0, -1)]]), ValueError, "layer 0: expected coordinates in 0 … 3, got -1"),
    ("coordinates not whole", lambda: Pairs(4, [[(0.0, 1.0)]]), ValueError, "layer 0: expected pairs of integers, .* got shape .* of float64"),
    ("batches that do not match", lambda: SymmetricOperator(Rotation(W, torch.zeros(2, 12)), torch.ones(3, 8)), ValueError, "expected batch shapes that broadcast, got \\(2,\\) of angles, \\(3,\\) of eigenvalues"),
    ("a number for a rotation", lambda: SymmetricOperator(3, torch.ones(8)), TypeError, "rotation: expected a Rotation, got int"),
    ("a huge negative n", lambda: Butterfly(-(10**400)), ValueError, "n: expected an integer ≥ 1, got about −10\\^400"),
    ("no number", lambda: checks.number("x", "1"), TypeError, "x: expected a number, got '1'"),
    ("a complex number", lambda: checks.number("x", np.complex128(1)), TypeError, "x: expected a number, got"),
    ("a truth value", lambda: checks.number("x", True), TypeError, "x: expected a number, got True"),
    ("NaN", lambda: checks.number("x", np.nan, at_least=0), ValueError, "x: expected a number ≥ 0, got nan"),
    ("infinity", lambda: checks.number("x", np.inf), ValueError, "x: expected a number, got inf"),
    ("a number too small", lambda: checks.number("x", 0, above=0), ValueError, "x: expected a number > 0, got 0"),
    ("a batch", lambda: checks.single("x", torch.Size((2,))), ValueError, "x: expected one operator, got a batch \\(2,\\); try one of the batch"),
    ("triples", lambda: Pairs(4, [[(0, 1, 2)]]), ValueError, "layer 0: expected pairs of integers, .* got shape \\(1, 3\\)"),
    ("one list of pairs", lambda: Pairs(4, [(0, 1), (2, 3)]), ValueError, "layer 0: expected pairs of integers, .* got shape \\(2,\\)"),
    ("ragged pairs", lambda: Pairs(4, [[(0, 1), (2,)]]), ValueError, "layer 0: expected pairs of integers, .* got rows of unequal length"),
    ("sequence out of range", lambda: Pairs.from_sequence(3, [(0, 5)]), ValueError, "pairs: expected coordinates in 0 … 2, got 5"),
    ("wiring of another kind", lambda: Rotation(8, A), TypeError, "wiring: expected a Wiring, got int; try Butterfly"),
    ("too few angles", lambda: Rotation(W, A[:-1]), ValueError, "angles: expected the last axis to be .* = 12, got shape \\(11,\\)"),
    ("angles a number", lambda: Rotation(W, 1.0), ValueError, "angles: expected the last axis to be .* = 12, got shape \\(\\)"),
    ("angles complex", lambda: Rotation(W, A + 0j), TypeError, "angles: expected float64, .*, got torch.complex64"),
    ("angles words", lambda: Rotation(W, ["a"] * 12), TypeError, "angles: expected a tensor or array of real numbers, got list"),
    ("angles NaN", lambda: Rotation(W, A * np.nan), ValueError, "angles: expected finite numbers, got 12 of 12 NaN or infinite"),
    ("angles infinite", lambda: Rotation(W, A.index_fill(0, torch.tensor(3), np.inf)), ValueError, "got 1 of 12 NaN or infinite"),
    ("rotation of another kind", lambda: SymmetricOperator(A, A), TypeError, "rotation: expected a Rotation, got Tensor"),
    ("too few eigenvalues", lambda: SymmetricOperator(Q, torch.ones(7)), ValueError, "eigenvalues: expected the last axis to be n = 8, got shape \\(7,\\)"),
    ("eigenvalues elsewhere", lambda: SymmetricOperator(Q, torch.ones(8, device="meta")), ValueError, "expected everything on one device, got angles on cpu, eigenvalues on meta"),
    ("x too short", lambda: Q(x[:7]), ValueError, "x: expected the last axis to be n = 8, got shape \\(7,\\)"),
    ("x a number", lambda: Q(torch.tensor(1.0)), ValueError, "x: expected the last axis to be n = 8, got shape \\(\\)"),
    ("x in columns", lambda: Q(torch.ones(8, 3)), ValueError, "x: expected the last axis .* got shape \\(8, 3\\); .* try x.mT"),
    ("@ of rows", lambda: Q @ torch.ones(3, 8), ValueError, "X: expected shape .* for @, got \\(3, 8\\); .* try the call form"),
    ("solve of rows", lambda: (H + 1).solve(np.ones((3, 8))), ValueError, "B: expected shape .* for solve, got \\(3, 8\\); its rows have length n: try solve\\(B.mT\\).mT"),
    ("solve of rows, with terms", lambda: (H + 1 + LowRank(x)).solve(torch.ones(3, 8)), ValueError, "B: expected shape .* for solve"),
    ("one index", lambda: H[0], ValueError, "index: expected two indices, .*, got one, 0; try A\\[i, j\\]"),
    ("a layer saved", lambda: save(nn.Rotate(8), "Q.safetensors"), TypeError, "operator: expected a Rotation, .* got Rotate; try its .rotation"),
    ("a fit compared", lambda: error_angle(H, fit_symmetric(np.eye(8))), TypeError, "B: expected a matrix, .* got FitResult; try its .operator"),
    ("wiring by name", lambda: nn.Rotate(wiring="butterfly"), TypeError, "wiring: expected a Butterfly, .* got 'butterfly'; try Butterfly\\(n\\)"),
    ("@ of another size", lambda: H @ torch.ones(7, 3), ValueError, "X: expected shape .* for @, got \\(7, 3\\)"),
    ("rows @", lambda: torch.ones(3, 7) @ H, ValueError, "expected the last axis to be n = 8, got shape \\(3, 7\\)"),
    ("NumPy of another size", lambda: H @ np.ones(7), ValueError, "expected the last axis to be n = 8, got shape \\(7,\\)"),
    ("x complex", lambda: Q(x + 0j), TypeError, "x: expected float64, .*, got torch.complex64; try .*real"),
    ("NumPy complex", lambda: H @ (np.ones(8) + 0j), TypeError, "X: expected float64, .*, got torch.complex128"),
    ("x whole numbers", lambda: Q(torch.ones(8, dtype=torch.int64)), TypeError, "x: expected float64, .*, got torch.int64"),
    ("x of 8 bits", lambda: Q(x.to(torch.float8_e4m3fn)), TypeError, "x: expected float64, .*, got torch.float8_e4m3fn"),
    ("x elsewhere", lambda: H(x.to("meta")), ValueError, "expected everything on one device, got x on meta, angles on cpu"),
    ("x words", lambda: Q @ ["a"] * 8, TypeError, "X: expected a tensor or array of real numbers, got list"),
    ("x nothing", lambda: Q(None), TypeError, "x: expected a tensor or array of real numbers, got NoneType"),
    ("x NumPy, in ops", lambda: ops.rotate(np.ones(8), W, A), TypeError, "x: expected a torch tensor, got ndarray"),
    ("angles, in ops", lambda: ops.rotate(x, W, A[:5]), ValueError, "angles: expected the last axis to be the wiring's K = 12"),
    ("eigenvalues, in ops", lambda: ops.symmetric_matvec(x, W, A, x[:3]), ValueError, "eigenvalues: expected the last axis to be n = 8"),
    ("eigenvalues complex", lambda: ops.quadratic_form(x, W, A, x + 0j), TypeError, "eigenvalues: expected float64"),
    ("back end unknown", lambda: use_backend("tpu").__enter__(), ValueError, "backend: expected one of 'cpu', 'gpu', 'reference', got 'tpu'"),
    ("dense too large", lambda: Rotation.identity(2**22).to_dense(), ValueError, "expected at most the .* GiB this machine has, got 65536.0 GiB"),
    ("angles too many", lambda: Rotation.random(2**42), ValueError, "expected at most the .* GiB this machine has, got"),
    ("absurd n", lambda: Butterfly(2**80), ValueError, "expected at most the .* GiB this machine has, got"),
    ("probes zero", lambda: H.diagonal("estimate", n_probes=0), ValueError, "n_probes: expected an integer ≥ 1, got 0"),
    ("samples negative", lambda: H.sample(-1), ValueError, "n_samples: expected an integer ≥ 0, got -1"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "kind", "message"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_bad_input(call, kind, message):
    with pytest.raises(kind, match=message) as caught:
        call()
    assert issubclass(caught.type, kind)
    text = str(caught.value)
    assert "expected" in text
    assert "got" in text
    assert "try" in text, text


def test_angles_that_become_nan_are_noticed():
    layer = nn.Rotate(8).requires_grad_(False)
    layer(x)
    layer.angles[2] = torch.nan
    with pytest.raises(ValueError, match="angles: expected finite numbers, got 1 of 12"):
        layer(x)


@pytest.mark.parametrize("batch", [((3,), (2,)), ((3, 2), (2, 3))])
def test_batches_that_do_not_broadcast(batch):
    with pytest.raises(RuntimeError, match=r"[Ss]hape mismatch|broadcast"):
        ops.rotate(torch.ones(*batch[0], 8), W, torch.zeros(*batch[1], 12))


def test_an_unavailable_back_end_says_why():
    reasons = kernels.available_backends()
    assert set(reasons) == {"reference", "cpu", "gpu"}
    assert reasons["reference"] is None
    assert reasons["cpu"] is None
    if torch.cuda.is_available():
        pytest.skip("here it is available")
    assert reasons["gpu"]
    with pytest.raises(
        RuntimeError, match=r"back end 'gpu' was asked for but cannot run: .*[^.]; try one of: cpu, reference"
    ):
        use_backend("gpu").__enter__()
    with pytest.raises(RuntimeError, match="'gpu' was asked for but cannot run"):
        kernels.load("gpu")


def test_a_back_end_asked_for_is_the_one_that_runs(monkeypatch):
    assert select_backend(x) == "cpu"
    ran = []
    for name in ("reference", "cpu"):
        module = kernels.load(name)
        original = module.rotate
        monkeypatch.setattr(
            module, "rotate", lambda *a, _o=original, _n=name, **k: ran.append(_n) or _o(*a, **k)
        )
    for name in ("reference", "cpu", "reference"):
        with use_backend(name):
            assert select_backend(x) == name
            Q(x)
            assert ran[-1] == name
    assert select_backend(x) == "cpu"


def test_the_choice_of_back_end_ends_with_an_error():
    with pytest.raises(ArithmeticError), use_backend("reference"):
        raise ArithmeticError
    assert select_backend(x) == "cpu"


def test_whole_numbers_take_the_operators_dtype():
    assert checks.as_tensor("x", [1, 2]).dtype == torch.get_default_dtype()
    assert checks.as_tensor("x", [1, 2], torch.zeros(1, dtype=torch.float64)).dtype == torch.float64
    assert (Q @ np.ones(8, np.int16)).dtype == np.float32


def test_arrays_are_shared_where_they_can_be():
    array = np.ones(3)
    tensor = checks.as_tensor("x", array)
    array[0] = 5
    assert float(tensor[0]) == 5


@pytest.mark.filterwarnings("ignore:.*prototype", "ignore:.*deprecated")
@pytest.mark.parametrize("kind", ["sparse", "nested"])
def test_tensors_that_are_not_dense_are_refused(kind):
    x = torch.ones(8).to_sparse() if kind == "sparse" else torch.nested.nested_tensor([torch.ones(8)])
    with pytest.raises(ArgumentError, match=r"^x: expected a dense tensor, got .*; try its to_dense\(\)"):
        checks.as_tensor("x", x)


@pytest.mark.parametrize("dtype", [object, np.longdouble, str])
def test_arrays_that_pytorch_does_not_hold(dtype):
    with pytest.raises(ArgumentError, match=r"got ndarray .*; try H\.astype\(numpy\.float64\)"):
        fit_symmetric(np.eye(3).astype(dtype))


def test_numbers_that_pass():
    assert checks.number("x", 0, at_least=0) == 0.0
    assert checks.number("x", np.float32(1.5), above=1) == 1.5
    assert isinstance(checks.number("x", np.int64(3)), float)


def test_masked_entries_are_refused_and_a_mask_without_any_is_not():
    masked = np.ma.masked_array(np.ones(4), mask=[True, False, False, False])
    with pytest.raises(ArgumentError, match=r"^x: expected all entries, got 1 of 4 masked; try its filled"):
        checks.as_tensor("x", masked)
    assert checks.as_tensor("x", np.ma.masked_array(np.ones(4))).tolist() == [1.0] * 4
    with pytest.raises(ArgumentError, match="masked"):
        Rotation.random(4, seed=0) @ masked
