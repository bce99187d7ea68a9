"""The GPU back end against the reference, on a GPU or in Triton's interpreter (`interpreter.py`)."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from interpreter import DEVICE, RUNS_HERE, needs_kernels, only_without_kernels, run_interpreted

pytest.importorskip("triton", reason="the GPU back end needs Triton")

from kernels.gpu.checking import assert_close, check, problem

from swallowtail.errors import ArgumentError
from swallowtail.kernels import reference
from swallowtail.kernels.gpu import backend as gpu
from swallowtail.kernels.protocol import FORMS
from swallowtail.wiring import Butterfly, Pairs

HERE = Path(__file__).parent
# In processes of their own, so that no worker waits for the last.
LONGEST = ("test_backend.py", "test_butterfly.py", "test_grouped.py")


@only_without_kernels
@pytest.mark.parametrize("part", [*LONGEST, "the rest"])
def test_in_the_interpreter(part):
    """All kernel tests of this folder."""
    if part in LONGEST:
        run_interpreted(str(HERE / part))
    else:
        run_interpreted(str(HERE), *(f"--ignore={HERE / name}" for name in LONGEST))


# Every small length and depth, each order of strides; one group (n ≤ 16), two (17 and more), and a rest of stages.
BUTTERFLIES = [
    Butterfly(1),
    Butterfly(2),
    Butterfly(2, 3, reverse=True),
    Butterfly(3, 2),
    Butterfly(4, reverse=True),
    Butterfly(5, 2),
    Butterfly(6, 2, reverse=True),
    Butterfly(7, reverse=True),
    Butterfly(8, 2),
    Butterfly(11, 3, reverse=True),
    Butterfly(16),
    Butterfly(17, 2, reverse=True),
    Butterfly(33),
    Butterfly(100),
]


@needs_kernels
@pytest.mark.parametrize("wiring", BUTTERFLIES, ids=repr)
@pytest.mark.parametrize("prepared", [True, False])
def test_every_function_on_butterflies(wiring, prepared):
    check(wiring, 2, 3, torch.float64, 1e-13, prepared)


@needs_kernels
@pytest.mark.parametrize("wiring", BUTTERFLIES, ids=repr)
def test_prepared_butterflies_are_fast_and_others_are_not(wiring):
    """So that the test above covers both forms."""
    angles, d, _, _ = problem(wiring, 2, 3)
    assert gpu.prepare(wiring, angles, d).fast == (wiring.n_rotations > 0)
    assert not gpu.prepare(wiring, angles, d, fast=False).fast


@needs_kernels
@pytest.mark.parametrize(
    ("dtype", "bound"), [(torch.float32, 1e-6), (torch.bfloat16, 8e-3), (torch.float16, 1e-3)]
)
def test_storage_dtypes(dtype, bound):
    check(Butterfly(17, 2, reverse=True), 1, 5, dtype, bound, True)


@needs_kernels
@pytest.mark.parametrize("m", [0, 1])
def test_no_vector_and_one_vector(m):
    check(Butterfly(5, reverse=True), 1, m, torch.float64, 1e-13, False)


@needs_kernels
def test_expanded_and_strided_vectors():
    wiring = Butterfly(17, 2, reverse=True)
    angles, d, x, _ = problem(wiring, 1, 4)
    for view in (x[:, :1].expand(1, 4, 17), x.transpose(1, 2).contiguous().transpose(1, 2), x[:, ::2]):
        expected = reference.symmetric(wiring, angles, d, view)
        assert_close(gpu.symmetric(wiring, angles, d, view), expected, 1e-13, "symmetric")


@needs_kernels
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("dtype", "decades"), [(torch.float32, 30), (torch.float64, 150)])
def test_eigenvalues_of_many_magnitudes(reverse, dtype, decades):
    """The scales of the fast form do not fit beside them: the plain form of the same wiring is prepared."""
    wiring = Butterfly(6, 3, reverse=reverse)
    angles, _, x, _ = problem(wiring, 1, 2, dtype)
    d = torch.logspace(-decades, decades, 6, dtype=torch.float64, device=DEVICE)[None].to(dtype)
    tables = gpu.prepare(wiring, angles, d)
    assert not tables.fast
    exact, bound = (angles.double(), d.double(), x.double()), 20 * torch.finfo(dtype).eps
    y = gpu.symmetric(wiring, angles, d, x, prepared=tables)
    assert_close(y, reference.symmetric(wiring, *exact), bound, "symmetric")
    q = gpu.quadratic(wiring, angles, d, x, prepared=tables)
    assert_close(q, reference.quadratic(wiring, *exact), bound, "quadratic")


@needs_kernels
def test_eigenvalues_that_come_after_preparing():
    for n, fast in ((8, True), (8, False)):
        wiring = Butterfly(n, 2, reverse=True)
        angles, d, x, _ = problem(wiring, 1, 3)
        tables = gpu.prepare(wiring, angles, fast=fast)
        assert tables.middle is None
        expected = reference.symmetric(wiring, angles, d, x)
        assert_close(gpu.symmetric(wiring, angles, d, x, prepared=tables), expected, 1e-13, f"{fast=}")


@needs_kernels
def test_angle_gradients_have_the_same_bits_every_time():
    for wiring in (Butterfly(33), Pairs(5, [[(0, 1), (2, 3)], [(1, 4)], [(0, 2)]])):
        angles, _, y, grad = problem(wiring, 1, 50, torch.float32)
        first, second = (gpu.rotate_backward(wiring, angles, y, grad)[1] for _ in range(2))
        assert torch.equal(first, second)


@needs_kernels
@pytest.mark.parametrize("shape", [(), (2, 3), (0,)])
@pytest.mark.parametrize(
    "wiring", [Butterfly(6, 2, reverse=True), Pairs(6, [[(0, 4), (1, 2)], [(2, 4)]])], ids=repr
)
def test_functions_of_vectors_alone(wiring, shape):
    angles, d, _, _ = problem(wiring, 1, 1)
    x = torch.randn(*shape, 6, dtype=torch.float64, device=DEVICE)
    rows = x.reshape(1, -1, 6)
    expected = {
        "from_basis": reference.rotate(wiring, angles, rows).view(x.shape),
        "to_basis": reference.rotate(wiring, angles, rows, True).view(x.shape),
        "symmetric": reference.symmetric(wiring, angles, d, rows).view(x.shape),
        "quadratic": reference.quadratic(wiring, angles, d, rows).view(shape),
    }
    assert tuple(expected) == FORMS
    for form, result in expected.items():
        eigenvalues = d if form in ("symmetric", "quadratic") else None
        run = gpu.bind(wiring, form, gpu.prepare(wiring, angles, eigenvalues))
        assert_close(run(x), result, 1e-13, form)


@needs_kernels
def test_a_function_of_vectors_alone_wants_them_on_its_device():
    wiring = Butterfly(6)
    run = gpu.bind(wiring, "from_basis", gpu.prepare(wiring, problem(wiring, 1, 1)[0]))
    with pytest.raises(ArgumentError, match="one device"):
        run(torch.empty(6, dtype=torch.float64, device="meta"))
    assert gpu.bind(Butterfly(1), "from_basis", None) is None


def test_multiply_adds_of_each_form():
    plain = gpu.tables.PreparedButterfly(False, (), (), torch.empty(0), None)
    fast = plain._replace(fast=True, scale=torch.empty(1, 2, 16))
    wiring = Butterfly(16, 2)  # 64 rotations
    counted = lambda tables: [
        gpu.multiply_adds(wiring, tables, f) for f in ("rotate", "symmetric", "quadratic")
    ]
    assert counted(plain) == [256, 512 + 16, 256 + 32]
    assert counted(fast) == [128 + 32, 2 * (128 + 16) + 16, 128 + 16 + 32]


def test_an_unknown_wiring_is_refused():
    class Other(Butterfly.__base__):
        n, n_rotations = 2, 1

    with pytest.raises(ArgumentError, match="expected a Butterfly or Pairs, got Other"):
        gpu.prepare(Other(), torch.zeros(1, 1))


def test_availability_is_explained(monkeypatch):
    if not RUNS_HERE:
        assert "TRITON_INTERPRET" in gpu.available()
    else:
        assert gpu.available() is None
    monkeypatch.setattr(gpu, "_missing", "no module named triton")
    assert (
        gpu.available() == "Triton cannot be imported (no module named triton); install the package triton."
    )
