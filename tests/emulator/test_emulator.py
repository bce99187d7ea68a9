"""The emulated H200 against plain arithmetic, and that it finds what it is there to find."""

from __future__ import annotations

import numpy as np
import pytest
import torch

pytest.importorskip("triton", reason="the emulator compiles with Triton")

from emulator.h200 import run
from emulator.memory import MemoryFault
from emulator.ptx import parse
from emulator.translate import translate
from emulator.warp import LANES, loaded, product, shuffled, stored

START = """
.visible .entry kernel(
.param .u64 .ptr .global .align 1 kernel_param_0, .param .u64 .ptr .global .align 1 kernel_param_1)
{ .reg .pred %p<9>; .reg .b16 %rs<9>; .reg .b32 %r<30>; .reg .b64 %rd<9>;
ld.param.b64 %rd0, [kernel_param_0]; ld.param.b64 %rd1, [kernel_param_1];
mov.u32 %r0, %tid.x; mul.wide.u32 %rd2, %r0, 4; add.s64 %rd3, %rd0, %rd2; add.s64 %rd4, %rd1, %rd2;
"""
LOAD = "ld.global.b32 {%r1}, [%rd3]; ld.global.b32 {%r2}, [%rd3 + 256];"
STORE = "st.global.b32 [%rd4], {%r9};"


def kernel(code: str, inputs: np.ndarray, warps: int = 2, shared: int = 0, apart: bool = False) -> np.ndarray:
    """Run a piece of PTX on two words per thread, %r1 and %r2; the words that it leaves in %r9."""
    given, found = torch.from_numpy(inputs.view(np.int32)), torch.full((32 * warps,), -1, dtype=torch.int32)
    translated = translate(parse(START + LOAD + code + STORE + "ret; }"))
    run(translated, (given, found), shared, warps, apart=apart)
    return found.numpy().view(np.uint32)


def words(count: int = 128) -> np.ndarray:
    rng = np.random.default_rng(0)
    found = rng.integers(0, 2**32, count, dtype=np.uint64).astype(np.uint32)
    found[:8] = [0, 1, 31, 32, 33, 2**31, 2**32 - 1, 2**31 - 1]
    return found


def signed(word: int, width: int = 32) -> int:
    return word - (1 << width) if word >> (width - 1) else word


def towards_zero(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def byte(a: int, b: int, choice: int) -> int:
    found = (b << 32 | a) >> 8 * (choice & 7) & 255
    return 255 * (found >> 7) if choice & 8 else found


ALL = 2**32 - 1
INTEGERS = {
    "add.s32 %r9, %r1, %r2;": lambda a, b: a + b,
    "sub.s32 %r9, %r1, %r2;": lambda a, b: a - b,
    "mul.lo.s32 %r9, %r1, %r2;": lambda a, b: a * b,
    "mul.hi.u32 %r9, %r1, %r2;": lambda a, b: a * b >> 32,
    "mul.hi.s32 %r9, %r1, %r2;": lambda a, b: signed(a) * signed(b) >> 32,
    "mul.wide.s32 %rd5, %r1, %r2; shr.u64 %rd5, %rd5, 5; cvt.u32.u64 %r9, %rd5;": (
        lambda a, b: signed(a) * signed(b) >> 5
    ),
    "mad.lo.s32 %r9, %r1, 7, %r2;": lambda a, b: 7 * a + b,
    "div.s32 %r9, %r1, 7;": lambda a, b: towards_zero(signed(a), 7),
    "rem.s32 %r9, %r1, -7;": lambda a, b: signed(a) + 7 * towards_zero(signed(a), -7),
    "div.u32 %r9, %r1, 7;": lambda a, b: a // 7,
    "and.b32 %r3, %r2, 63; shl.b32 %r9, %r1, %r3;": lambda a, b: a << (b & 63),
    "and.b32 %r3, %r2, 63; shr.u32 %r9, %r1, %r3;": lambda a, b: a >> (b & 63),
    "and.b32 %r3, %r2, 63; shr.s32 %r9, %r1, %r3;": lambda a, b: signed(a) >> (b & 63),
    "shf.l.wrap.b32 %r9, %r1, %r2, 8;": lambda a, b: (b << 32 | a) << 8 >> 32,
    "bfe.u32 %r9, %r1, 3, 5;": lambda a, b: a >> 3 & 31,
    "bfe.s32 %r9, %r1, 3, 5;": lambda a, b: signed(a >> 3 & 31, 5),
    "prmt.b32 %r9, %r1, %r2, 0x5410U;": lambda a, b: (a & 0xFFFF) | (b & 0xFFFF) << 16,
    "prmt.b32 %r9, %r1, %r2, 0xb3f1U;": lambda a, b: sum(
        byte(a, b, choice) << 8 * k for k, choice in enumerate((1, 15, 3, 11))
    ),
    "lop3.b32 %r9, %r1, %r2, %r0, 0xca;": lambda a, b, t: a & b | ~a & t,
    "min.s32 %r9, %r1, %r2;": lambda a, b: min(signed(a), signed(b)),
    "max.u32 %r9, %r1, %r2;": lambda a, b: max(a, b),
    "max.u16x2 %r9, %r1, %r2;": lambda a, b: max(a & 0xFFFF, b & 0xFFFF) | max(a >> 16, b >> 16) << 16,
    "setp.lt.s32 %p0, %r1, %r2; selp.b32 %r9, 3, 4, %p0;": lambda a, b: 3 if signed(a) < signed(b) else 4,
    "setp.lt.u32 %p0, %r1, %r2; selp.b32 %r9, 3, 4, %p0;": lambda a, b: 3 if a < b else 4,
    "mov.b32 {%rs0, %rs1}, %r1; mov.b32 %r9, {%rs1, %rs0};": lambda a, b: a >> 16 | a << 16,
    "cvt.u16.u32 %rs0, %r1; cvt.s32.s16 %r9, %rs0;": lambda a, b: signed(a & 0xFFFF, 16),
    "mov.u32 %r9, 5; setp.lt.u32 %p0, %r1, %r2; @%p0 mov.u32 %r9, 6; @!%p0 add.s32 %r9, %r9, 2;": (
        lambda a, b: 7 - (a < b)
    ),
    # Threads go different ways and meet again; one goes round a loop as often as its number says.
    "setp.lt.s32 %p0, %r1, 0; mov.u32 %r9, 1; @%p0 bra $A; add.s32 %r9, %r9, 1; $A: add.s32 %r9, %r9, 10;": (
        lambda a, b: 11 if signed(a) < 0 else 12
    ),
    "mov.u32 %r9, 0; $B: add.s32 %r9, %r9, 3; setp.le.u32 %p0, %r9, %r0; @%p0 bra $B;": lambda a, b, t: t // 3 * 3 + 3,
}  # fmt: skip


@pytest.mark.parametrize("code", INTEGERS)
def test_integers(code):
    function, given = INTEGERS[code], words()
    found = kernel(code, given)
    extra = [(t,) if function.__code__.co_argcount == 3 else () for t in range(64)]
    expected = [
        function(int(a), int(b), *t) & ALL for a, b, t in zip(given[:64], given[64:], extra, strict=True)
    ]
    np.testing.assert_array_equal(found, expected)


FLOATS = {
    "add.f32 %r9, %r1, %r2;": lambda a, b: a + b,
    "mul.f32 %r9, %r1, %r2;": lambda a, b: a * b,
    "fma.rn.f32 %r9, %r1, %r2, %r1;": lambda a, b: (a.double() * b.double() + a.double()).float(),
    # The assembler makes one instruction of a product and a sum.
    "mul.f32 %r3, %r1, %r2; sub.f32 %r9, %r3, %r1;": lambda a, b: (a.double() * b.double() - a.double()).float(),
    "mul.f32 %r3, %r1, %r2; sub.f32 %r9, %r1, %r3;": lambda a, b: (a.double() - a.double() * b.double()).float(),
    "neg.f32 %r9, %r1;": lambda a, b: -a,
    "abs.f32 %r9, %r1;": lambda a, b: a.abs(),
    "max.f32 %r9, %r1, %r2;": torch.fmax,
    "min.NaN.f32 %r9, %r1, %r2;": torch.minimum,
    "div.full.f32 %r9, %r1, %r2;": lambda a, b: a / b,
    "setp.ltu.f32 %p0, %r1, %r2; selp.f32 %r9, 0f3F800000, 0f40000000, %p0;": (
        lambda a, b: torch.where(~(a >= b), 1.0, 2.0)
    ),
    "setp.ne.f32 %p0, %r1, %r2; selp.f32 %r9, 0f3F800000, 0f40000000, %p0;": lambda a, b: torch.where(
        (a < b) | (a > b), 1.0, 2.0
    ),
    "cvt.rn.bf16.f32 %rs0, %r1; cvt.f32.bf16 %r9, %rs0;": lambda a, b: a.bfloat16().float(),
    "cvt.rn.f16.f32 %rs0, %r1; cvt.f32.f16 %r9, %rs0;": lambda a, b: a.half().float(),
    "cvt.rn.bf16x2.f32 %r3, %r1, %r2; and.b32 %r9, %r3, -65536;": lambda a, b: a.bfloat16().float(),
    "cvt.rn.bf16x2.f32 %r3, %r1, %r2; shl.b32 %r9, %r3, 16;": lambda a, b: b.bfloat16().float(),
    "cvt.rn.bf16.f32 %rs0, %r1; cvt.rn.bf16.f32 %rs1, %r2; max.bf16 %rs2, %rs0, %rs1; cvt.f32.bf16 %r9, %rs2;": (
        lambda a, b: torch.fmax(a.bfloat16(), b.bfloat16()).float()
    ),
    "cvt.rn.bf16.f32 %rs0, %r1; abs.bf16 %rs1, %rs0; cvt.f32.bf16 %r9, %rs1;": (
        lambda a, b: a.bfloat16().abs().float()
    ),
    "cvt.rni.s32.f32 %r3, %r1; cvt.rn.f32.s32 %r9, %r3;": (
        lambda a, b: torch.nan_to_num(a.round().clamp(-(2.0**31), 2.0**31), 0.0)
    ),
    "cvt.f64.f32 %rd5, %r1; cvt.rmi.f64.f64 %rd6, %rd5; cvt.rn.f32.f64 %r9, %rd6;": lambda a, b: a.floor(),
}  # fmt: skip


@pytest.mark.parametrize("code", FLOATS)
def test_floats(code):
    rng = np.random.default_rng(1)
    given = (rng.standard_normal(128) * 10.0 ** rng.integers(-3, 4, 128)).astype(np.float32)
    given[:9] = [0.0, np.nan, np.inf, -np.inf, 1e-40, 0.5, -2.5, 3.4e38, 65520.0]
    given[64:68] = [np.nan, 0.0, 1.0, -np.inf]
    a, b = torch.from_numpy(given[:64]), torch.from_numpy(given[64:])
    found = torch.from_numpy(kernel(code, given).view(np.float32).copy())
    torch.testing.assert_close(found, FLOATS[code](a, b).float(), rtol=0, atol=0, equal_nan=True)


def test_matrices_of_a_warp():
    """Rows that are loaded are the fragments that a product takes, and a stored result is the product's."""
    rng = np.random.default_rng(2)
    A, B = (rng.standard_normal(shape).astype(np.float16) for shape in ((3, 16, 16), (3, 16, 8)))
    quarters = np.stack([A[:, :8, :8], A[:, 8:, :8], A[:, :8, 8:], A[:, 8:, 8:]], axis=1).view(np.uint16)
    halves = np.stack([B[:, :8], B[:, 8:]], axis=1).view(np.uint16)
    zero = [np.zeros((3, 32), np.uint32)] * 4
    found = product("m16n8k16", "f16", loaded(quarters, False), loaded(halves, True), zero)
    D = np.zeros((3, 16, 8))
    for k in range(4):  # as NVIDIA draws the result
        D[:, LANES // 4 + 8 * (k // 2), LANES % 4 * 2 + k % 2] = found[k].view(np.float32)
    np.testing.assert_allclose(D, A.astype(float) @ B.astype(float), rtol=1e-6, atol=1e-6)
    for transposed in (False, True):
        np.testing.assert_array_equal(stored(loaded(quarters, transposed), transposed), quarters)


def test_tf32_products_ignore_the_last_bits():
    rng = np.random.default_rng(3)
    A, B = rng.standard_normal((16, 8)).astype(np.float32), rng.standard_normal((8, 8)).astype(np.float32)
    a = [A[LANES // 4 + 8 * (k % 2), LANES % 4 + 4 * (k // 2)][None].view(np.uint32) for k in range(4)]
    b = [B[LANES % 4 + 4 * k, LANES // 4][None].view(np.uint32) for k in range(2)]
    found = product("m16n8k8", "tf32", a, b, [np.zeros((1, 32), np.uint32)] * 4)
    D = np.zeros((16, 8))
    for k in range(4):
        D[LANES // 4 + 8 * (k // 2), LANES % 4 * 2 + k % 2] = found[k][0].view(np.float32)
    short = lambda M: (M.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32).astype(float)
    np.testing.assert_allclose(D, short(A) @ short(B), rtol=1e-6, atol=1e-6)


def test_shuffles():
    a = np.arange(64, dtype=np.uint32).reshape(2, 32)
    every = np.full((2, 32), 31, np.uint32)
    np.testing.assert_array_equal(shuffled(a, every * 0 + 5, every, "bfly")[0], a ^ 5)
    np.testing.assert_array_equal(shuffled(a, every * 0 + 3, every, "idx")[0], a // 32 * 32 + 3)
    found, inside = shuffled(a, every * 0 + 4, every, "down")
    np.testing.assert_array_equal(inside, (a % 32) < 28)
    np.testing.assert_array_equal(found, np.where(inside, a + 4, a))


SWAP = (  # threads of two warps exchange a word through shared memory
    "mov.b32 %r3, global_smem; shl.b32 %r4, %r0, 2; add.s32 %r5, %r3, %r4; xor.b32 %r6, %r4, 128;"
    "add.s32 %r7, %r3, %r6; st.shared.b32 [%r5], {%r1}; {barrier} ld.shared.b32 {%r9}, [%r7];"
)


@pytest.mark.parametrize("apart", [False, True])
def test_a_missing_barrier_is_found(apart):
    given = words()
    found = kernel(SWAP.replace("{barrier}", "bar.sync 0;"), given, shared=256, apart=apart)
    np.testing.assert_array_equal(found, given[:64][np.arange(64) ^ 32])
    with pytest.raises(MemoryFault, match="no barrier"):
        kernel(SWAP.replace("{barrier}", ""), given, shared=256, apart=apart)


@pytest.mark.parametrize("apart", [False, True])
def test_two_warps_that_write_to_one_word_are_found(apart):
    code = "mov.b32 %r3, global_smem; {value} st.shared.b32 [%r3], {%r4}; mov.u32 %r9, 0;"
    kernel(code.replace("{value}", "mov.u32 %r4, 7;"), words(), shared=256, apart=apart)  # the same number
    with pytest.raises(MemoryFault, match="writes what another writes"):
        kernel(code.replace("{value}", "shr.u32 %r4, %r0, 5;"), words(), shared=256, apart=apart)


def test_the_next_writer_needs_a_barrier_too():
    again = SWAP.replace("{barrier}", "bar.sync 0;") + "st.shared.b32 [%r5], {%r2};"
    with pytest.raises(MemoryFault, match="no barrier"):
        kernel(again, words(), shared=256)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("ld.global.b32 {%r9}, [%rd3 + 512];", "nobody's"),
        ("st.global.b32 [%rd4 + -4096], {%r1};", "nobody's"),
        ("ld.global.v2.b32 {%r9, %r8}, [%rd3 + 4];", "8 bytes to"),
        (
            "mov.b32 %r3, global_smem; shl.b32 %r4, %r0, 2; add.s32 %r5, %r3, %r4; st.shared.b32 [%r5 + 16], {%r1};",
            "nobody's",
        ),
    ],
)  # fmt: skip
def test_what_is_not_the_kernels_own_is_found(code, message):
    with pytest.raises(MemoryFault, match=message):
        kernel(code + "mov.u32 %r9, 0;", words(), shared=256)


COPY = (
    "mov.b32 %r3, global_smem; shl.b32 %r4, %r0, 4; add.s32 %r5, %r3, %r4; and.b32 %r6, %r0, 7;"
    "mul.wide.u32 %rd5, %r6, 16; add.s64 %rd5, %rd0, %rd5; {set}"
    "cp.async.cg.shared.global [%r5 + 0], [%rd5 + 0], 0x10, {size}; cp.async.commit_group; {wait}"
    "ld.shared.b32 {%r9}, [%r5 + 4];"
)


def copied(size: str, wait: str, before: str = "") -> np.ndarray:
    code = COPY.replace("{size}", size).replace("{wait}", wait).replace("{set}", before)
    return kernel(code, words(), shared=1024)


def test_copies_that_run_aside():
    all_arrived = "cp.async.wait_group 0;"
    np.testing.assert_array_equal(copied("0x10", all_arrived), words()[4 * (np.arange(64) % 8) + 1])
    np.testing.assert_array_equal(copied("%r20", all_arrived, "mov.u32 %r20, 0;"), np.zeros(64))
    for wait in ("", "cp.async.wait_group 1;"):
        with pytest.raises(MemoryFault, match="under way"):
            copied("0x10", wait)


def test_what_is_not_known_is_named():
    with pytest.raises(NotImplementedError, match="wgmma"):
        kernel("wgmma.fence.sync.aligned; mov.u32 %r9, 0;", words())
