"""The inline PTX of `gluon.half_rounds`, as text for the compiler: steps, and vectors on their way in and out.

Every function gives one piece of code; its operands are $0, $1 and so on, results first. Registers of shared memory's
addresses, exponents and the like come as often as the compiler packs numbers, all the same.
"""

from __future__ import annotations

from swallowtail.kernels.gpu.gluon.pieces import TURNED
from swallowtail.kernels.gpu.triton_private import gluon

# Largest numbers of vectors that are taken as they are: from 2^-6 to below 2^7. Others are brought to 2^6.
USUAL = 6
BITS = {"bf16": (7, 127), "fp16": (10, 15)}  # of the fraction, and what is added to exponents


@gluon.constexpr_function
def bits(KIND, WHICH):
    return BITS[KIND][WHICH]


@gluon.constexpr_function
def usual_power():
    return USUAL


@gluon.constexpr_function
def turned(LANES):
    """As `pieces.TURNED`, for the compiler."""
    return TURNED[LANES]


@gluon.constexpr_function
def chunk(LANES):
    """Vectors that come in and go out together: a power of two."""
    return LANES & -LANES


@gluon.constexpr_function
def step_code(LANES, PARTS):
    """PTX of a step. Operands: 4 · PARTS results (unused), as many addresses (all the same), and the matrix's.

    A lane's address is that of row lane % 16 of the group, its second eight vectors for lanes from 16 on.
    """
    count = 4 * PARTS
    address, matrix = f"${count}", [f"${2 * count + k}" for k in range(count)]
    code = [".reg .b32 a<4>, b<16>, p<16>;", ".reg .f32 d<32>;"]
    blocks = range(-(-LANES // 16))
    halves = [min(2, LANES // 8 - 2 * q) for q in blocks]  # eights of vectors in each block
    bits = TURNED[LANES]
    for q in blocks:
        code.append(f"xor.b32 a{q}, {address}, {16 * (2 * q & bits)};")
        code.append(f"add.u32 a{q}, a{q}, {16 * (2 * q & ~bits)};")
    for q in blocks:
        rows = ", ".join(f"b{4 * q + k}" for k in range(2 * halves[q]))
        code.append(f"ldmatrix.sync.aligned.m8n8.x{2 * halves[q]}.trans.shared.b16 {{{rows}}}, [a{q}];")
    for q in blocks:
        for half in range(halves[q]):
            d = [f"d{8 * q + 4 * half + k}" for k in range(4)]
            b = f"{{b{4 * q + 2 * half}, b{4 * q + 2 * half + 1}}}"
            code += [f"mov.f32 {each}, 0f00000000;" for each in d]
            for part in reversed(range(PARTS)):
                sums = "{" + ", ".join(d) + "}"
                a = "{" + ", ".join(matrix[4 * part : 4 * part + 4]) + "}"
                code.append(f"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {sums}, {a}, {b}, {sums};")
    for q in blocks:
        for k in range(2 * halves[q]):
            code.append(f"cvt.rn.f16x2.f32 p{4 * q + k}, d{8 * q + 2 * k + 1}, d{8 * q + 2 * k};")
        results = ", ".join(f"p{4 * q + k}" for k in range(2 * halves[q]))
        code.append(f"stmatrix.sync.aligned.m8n8.x{2 * halves[q]}.shared.b16 [a{q}], {{{results}}};")
    code += [f"mov.b32 ${k}, 0;" for k in range(count)]
    return "{" + " ".join(code) + "}"


@gluon.constexpr_function
def step_operands(PARTS):
    return ",".join(["=r"] * (4 * PARTS) + ["r"] * (8 * PARTS))


@gluon.constexpr_function
def _largest(KIND, NUMBERS):
    """PTX: ``top`` becomes the largest of eight numbers without their signs, as an integer."""
    code = [f"and.b32 t{k}, {NUMBERS[k]}, 0x7fff7fff;" for k in range(4)]
    code += ["max.u16x2 t0, t0, t1;", "max.u16x2 t2, t2, t3;", "max.u16x2 t0, t0, t2;"]
    code += ["shr.u32 t1, t0, 16;", "and.b32 t0, t0, 0xffff;", "max.u32 top, t0, t1;"]
    return code


@gluon.constexpr_function
def enter_code(KIND, SCALED):
    """PTX: eight neighbours of a vector go to shared memory in fp16, times 2^exponent (SCALED).

    Operands: four results (unused), and eight of each: the address, the word that says that this vector is not too
    small, the exponent; then the numbers, two in each of four. Without SCALED: the first word of shared memory after
    the rows becomes 1 if a number is too large.
    """
    fraction, bias = BITS[KIND]
    address, word, exponent, x = "$4", "$12", "$20", ["$28", "$29", "$30", "$31"]
    code = [".reg .b32 t<4>, top, s, h<4>;", ".reg .b16 l, u;", ".reg .f32 f<2>;", ".reg .pred p;"]
    if SCALED:
        code += [f"add.s32 s, {exponent}, 127;", "shl.b32 s, s, 23;"]
    else:
        code += _largest(KIND, x)
        code += [
            f"setp.ge.u32 p, top, {(bias + USUAL + 1) << fraction};",
            f"@p st.shared.b32 [{exponent}], 1;",
        ]
        code += [f"setp.ge.u32 p, top, {(bias - USUAL) << fraction};", f"@p st.shared.b32 [{word}], 1;"]
    for k in range(4):
        if KIND == "bf16":
            code += [f"shl.b32 t0, {x[k]}, 16;", f"and.b32 t1, {x[k]}, 0xffff0000;"]
            code += ["mov.b32 f0, t0;", "mov.b32 f1, t1;"]
        else:
            code += [f"mov.b32 {{l, u}}, {x[k]};", "cvt.f32.f16 f0, l;", "cvt.f32.f16 f1, u;"]
        if SCALED:
            code += ["mul.f32 f0, f0, s;", "mul.f32 f1, f1, s;"]
        code.append(f"cvt.rn.f16x2.f32 h{k}, f1, f0;")
    code.append(f"stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [{address}], {{h0, h1, h2, h3}};")
    code += [f"mov.b32 ${k}, 0;" for k in range(4)]
    return "{" + " ".join(code) + "}"


@gluon.constexpr_function
def measure_code(KIND):
    """PTX: a word of shared memory becomes the largest of itself and eight numbers. Operands: 4 results, word, x."""
    code = [".reg .b32 t<4>, top;", *_largest(KIND, ["$12", "$13", "$14", "$15"])]
    code += ["red.shared.max.u32 [$4], top;", *(f"mov.b32 ${k}, 0;" for k in range(4))]
    return "{" + " ".join(code) + "}"


@gluon.constexpr_function
def leave_code(KIND, FACTORS):
    """PTX: eight neighbours of a vector from shared memory, times 2^exponent in so many FACTORS.

    Operands: four results, and eight of each: the address, the exponent, nothing. Two factors are for exponents whose
    power may be out of range although results are not.
    """
    code = [".reg .b32 h<4>, e, s, r;", ".reg .b16 l, u;", ".reg .f32 f<2>;"]
    if FACTORS == 2:
        code += ["shr.s32 e, $12, 1;", "sub.s32 r, $12, e;", "add.s32 r, r, 127;", "shl.b32 r, r, 23;"]
    elif FACTORS == 1:
        code.append("mov.b32 e, $12;")
    if FACTORS:
        code += ["add.s32 e, e, 127;", "shl.b32 s, e, 23;"]
    code.append("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {h0, h1, h2, h3}, [$4];")
    for k in range(4):
        code += [f"mov.b32 {{l, u}}, h{k};", "cvt.f32.f16 f0, l;", "cvt.f32.f16 f1, u;"]
        for factor in ("s", "r")[:FACTORS]:
            code += [f"mul.f32 f0, f0, {factor};", f"mul.f32 f1, f1, {factor};"]
        code.append(f"cvt.rn.{'bf16x2' if KIND == 'bf16' else 'f16x2'}.f32 ${k}, f1, f0;")
    return "{" + " ".join(code) + "}"


@gluon.constexpr_function
def usual_code(LANES):
    """PTX: whether all vectors of a tile are taken as they are; a barrier. Operands: result, address of the words."""
    code = [".reg .b32 t, u, w;", ".reg .pred p, q;", "mov.u32 t, %tid.x;"]
    code += [f"and.b32 t, t, {(1 << (LANES - 1).bit_length()) - 1};", f"min.u32 t, t, {LANES - 1};"]
    code += ["shl.b32 t, t, 2;", "add.u32 t, t, $1;", "ld.shared.b32 u, [t + 4];", "ld.shared.b32 w, [$1];"]
    code += ["setp.ne.u32 p, u, 0;", "setp.eq.and.u32 p, w, 0, p;", "barrier.cta.red.and.pred q, 0, p;"]
    code.append("selp.b32 $0, 1, 0, q;")
    return "{" + " ".join(code) + "}"


@gluon.constexpr_function
def several(COUNT):
    """Constraints: four results, then so many registers."""
    return ",".join(["=r"] * 4 + ["r"] * COUNT)
