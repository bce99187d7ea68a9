"""Matrices for tensor cores: the rounds and strided passes, written out in PyTorch, against the reference."""

from __future__ import annotations

import pytest
import torch
from interpreter import DEVICE, INTERPRETED, needs_kernels

pytest.importorskip("triton", reason="the GPU back end needs Triton")

from kernels.gpu.checking import assert_close, problem

from swallowtail.kernels import reference
from swallowtail.kernels.gpu import block_tables, round_matrices
from swallowtail.kernels.gpu.block_plan import BlockPlan
from swallowtail.kernels.gpu.block_tables import BlockTables, Made, make
from swallowtail.kernels.gpu.plan import Pass
from swallowtail.wiring import Butterfly

FORMS = ("from_basis", "to_basis", "symmetric")


def matrices_by_pytorch(kernel, grid, angles, partner, angle, _, __, made, ___, levels, count, **constants):
    """What `matrices_kernel` computes, for all blocks at once."""
    size = made.shape[-1]
    m = torch.eye(size, dtype=torch.float64).expand(count, size, size)
    for k in reversed(range(levels)):
        theta = torch.where(angle[k] != 0, angles[0][angle[k].abs().long() - 1], 0)[..., None]
        other = m.gather(1, partner[k][..., None].expand(m.shape).long())
        m = theta.cos() * m + angle[k].sign()[..., None] * theta.sin() * other
    made.copy_(m.view(made.shape))


@pytest.fixture(autouse=True)
def quick_matrices(monkeypatch):
    """The interpreter needs a tenth of a second per matrix; test_round_matrices.py tries some."""
    if INTERPRETED:
        monkeypatch.setattr(round_matrices, "launch", matrices_by_pytorch)


def rounds(made: Made, x: torch.Tensor) -> torch.Tensor:
    """What `blocks_kernel` and `dense_kernel` compute, without rounding; the gain comes last of all."""
    p, n = made.plan, x.shape[-1]
    if p.thirds:
        return thirds(made, x)
    columns = -(-n // p.width)
    x = torch.nn.functional.pad(x, (0, columns * p.width - n)).view(-1, columns, p.high, p.low)
    low = made.low_first or p.high == 1
    for matrices in made.rounds:
        x = torch.einsum("cktf,mckf->mckt" if low else "cktf,mcfk->mctk", matrices.double(), x)
        low = not low
    return x.reshape(-1, columns * p.width)[:, :n]


def thirds(made: Made, x: torch.Tensor) -> torch.Tensor:
    """What `thirds_kernel` computes. Axes: bits 10–8, 7, 6–4, 3, 2–0 of a coordinate; t and f stand for to and from."""
    x = x.view(-1, 8, 2, 8, 2, 8)
    low, middle, high = made.rounds if made.low_first else reversed(made.rounds)
    steps = [
        ("abctuTU,mabcTU->mabctu", low.view(8, 2, 8, 2, 8, 2, 8)),
        ("adetuTU,maTUde->matude", middle.view(8, 2, 8, 2, 8, 2, 8)),
        ("ecdtuTU,mTUcde->mtucde", high.view(8, 8, 2, 8, 2, 8, 2)),
    ]
    for formula, matrices in steps if made.low_first else reversed(steps):
        x = torch.einsum(formula, matrices.double(), x)
    return x.reshape(-1, 2048)


def strided(made: Made, index: int, x: torch.Tensor, transpose: bool, growing: bool) -> torch.Tensor:
    """What `strided_kernel` computes, with its indices."""
    p, (u, v) = made.strided[index]
    partners, n = 1 << p.bits, x.shape[-1]
    half, span = partners // 2, 1 << (p.first + p.bits)
    quad, side = min(4, half), (1 << p.first) // p.cols
    y = torch.nn.functional.pad(x, (0, -n % span))
    for tile in range(u.shape[2]):
        begin = tile // side * span + tile % side * p.cols
        at = begin + (torch.arange(partners) << p.first)[:, None] + torch.arange(p.cols)
        part = y[:, at]  # (m, partners, columns)
        for stage in range(p.bits) if growing else reversed(range(p.bits)):
            c, s = (
                t[0, 0, tile, stage].view(half // quad, p.cols, quad).transpose(1, 2).reshape(half, p.cols).double()
                for t in (u, v)
            )  # fmt: skip
            s = -s if transpose else s
            pairs = part.reshape(len(y), half >> stage, 2, 1 << stage, p.cols)
            a, b = (pairs[:, :, i].reshape(len(y), half, p.cols) for i in (0, 1))
            halves = (c * a - s * b, c * b + s * a)
            parts = [t.view(len(y), half >> stage, 1, 1 << stage, p.cols) for t in halves]
            part = torch.cat(parts, 2).reshape(len(y), partners, p.cols)
        y[:, at] = part
    return y[:, :n]


def product(made: Made, x: torch.Tensor, form: str, reverse: bool) -> torch.Tensor:
    """All launches of `blocks.apply`."""
    growing, both = (form == "from_basis") != reverse, form == "symmetric"
    if not growing or both:
        for index in reversed(range(len(made.strided))):
            x = strided(made, index, x, form != "from_basis", False)
    x = rounds(made, x)
    if growing or both:
        for index in range(len(made.strided)):
            x = strided(made, index, x, form == "to_basis", True)
    return x if made.gain is None else x * made.gain.double()


def check(
    wiring: Butterfly, form: str, scale: float = 1.0, dtype: torch.dtype = torch.float32, bound: float = 5e-7
) -> None:
    angles, d, x, _ = problem(wiring, 1, 3)
    d = d * scale
    made = make(wiring, angles, d, form, dtype)
    exact = angles.double(), x.double()
    if form == "symmetric":
        expected = reference.symmetric(wiring, exact[0], d.double(), exact[1])
    else:
        expected = reference.rotate(wiring, exact[0], exact[1], form == "to_basis")
    cpu = Made(
        made.plan, tuple(t.cpu() for t in made.rounds), made.low_first,
        None if made.gain is None else made.gain.cpu(),
        tuple((p, type(t)(*(a.cpu() for a in t))) for p, t in made.strided),
    )  # fmt: skip
    assert_close(product(cpu, exact[1][0].cpu(), form, wiring.reverse), expected[0].cpu(), bound, form)


@pytest.fixture
def small(monkeypatch):
    """Blocks of 4 · 8 coordinates, dense ones of 8, and strided passes over 4 columns stand in for the real ones."""

    def use(high: int, low: int) -> None:
        plan = BlockPlan(high, low, rows=16)
        monkeypatch.setattr(block_tables, "block_plan", lambda *_: plan)
        monkeypatch.setattr(
            block_tables,
            "strided_passes",
            lambda n, width: () if n <= width else (Pass(width.bit_length() - 1, 2, 4, 1),),
        )

    return use


@needs_kernels
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("n", [32, 24, 29])
def test_two_rounds_of_one_column_block(small, n, reverse, form):
    small(4, 8)
    check(Butterfly(n, reverse=reverse), form)


@needs_kernels
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("n", [32, 24])
def test_one_dense_matrix(small, n, form):
    small(1, 32)
    check(Butterfly(n), form)
    check(Butterfly(n, reverse=True), form)


@needs_kernels
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("high", [4, 1])
@pytest.mark.parametrize("n", [128, 104])
def test_column_blocks_and_a_strided_pass(small, n, high, form):
    small(high, 32 // high)
    check(Butterfly(n), form)


@needs_kernels
@pytest.mark.parametrize("form", FORMS[:2])
def test_column_blocks_and_a_strided_pass_of_a_reversed_wiring(small, form):
    small(4, 8)
    check(Butterfly(104, reverse=True), form)


@needs_kernels
@pytest.mark.parametrize("scale", [1e-9, 1e9])
def test_eigenvalues_out_of_the_range_of_fp16(small, scale):
    """The power of two outside the matrices leaves these in range."""
    small(4, 8)
    wiring = Butterfly(32)
    check(wiring, "symmetric", scale, torch.float16, 6e-4)
    check(wiring, "symmetric", scale)
    angles, d, _, _ = problem(wiring, 1, 1)
    made = make(wiring, angles, d * scale, "symmetric", torch.float16)
    assert made.rounds[1].abs().max() <= 2
    assert made.rounds[1].abs().max() >= 0.1
    assert float(made.gain.log2()) % 1 == 0


@needs_kernels
@pytest.mark.parametrize("form", ["from_basis", "to_basis"])
@pytest.mark.parametrize("wiring", [Butterfly(264), Butterfly(2048), Butterfly(2048, reverse=True)], ids=repr)
def test_real_sizes(wiring, form):
    check(wiring, form)


@needs_kernels
def test_hadamard_and_identity_matrices_are_exact():
    """Angles ±π/4 give entries of 2^(-k/2); angles 0 give the identity."""
    wiring = Butterfly(16)
    made = make(wiring, torch.zeros(1, wiring.n_rotations, device=DEVICE), None, "to_basis", torch.bfloat16)
    assert torch.equal(made.rounds[0][0, 0].float().cpu(), torch.eye(16))
    angles = torch.full((1, wiring.n_rotations), torch.pi / 4, device=DEVICE)
    # The interpreter cuts bf16 off, where GPUs round.
    dtype = torch.float16 if INTERPRETED else torch.bfloat16
    made = make(wiring, angles, None, "from_basis", dtype)
    assert torch.equal(made.rounds[0].float().abs().cpu(), torch.full((1, 1, 16, 16), 0.25))


@needs_kernels
def test_tables_are_made_once_per_form_and_dtype():
    wiring = Butterfly(16)
    angles, d, _, _ = problem(wiring, 1, 1)
    kept = BlockTables(wiring, angles, d)
    first = kept.get("from_basis", torch.bfloat16)
    assert kept.get("from_basis", torch.bfloat16) is first
    assert kept.get("to_basis", torch.bfloat16) is not first
    assert kept.get("from_basis", torch.float16).rounds[0].dtype == torch.float16


def test_column_blocks_are_butterflies_of_their_own(monkeypatch):
    """Angles and eigenvalues of each block, against the stages inside it alone."""
    n, width = 64, 16
    wiring, seen = Butterfly(n), []
    generator = torch.Generator().manual_seed(0)
    draw = lambda *shape: torch.randn(*shape, generator=generator)
    angles, d, x = draw(1, wiring.n_rotations), draw(1, n), draw(1, 3, n)
    monkeypatch.setattr(block_tables.half_rounds, "make", lambda *a: seen.append(a))
    block_tables._column_blocks(wiring, width, angles, d, torch.bfloat16)
    ((small, own, eigenvalues, *_),) = seen
    assert small == Butterfly(width)
    inner = angles.double().clone()
    inner[:, : int(wiring.offsets[wiring.strides.index(width // 2)])] = 0
    expected = reference.symmetric(wiring, inner, d.double(), x.double())
    blocks = x.double().view(1, 3, n // width, width).transpose(1, 2)[0]
    found = reference.symmetric(small, own.double(), eigenvalues.double(), blocks.contiguous())
    assert_close(found.transpose(0, 1).reshape(1, 3, n), expected, 1e-12, "column blocks")
