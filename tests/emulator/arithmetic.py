"""What one thread computes, as Python expressions on arrays that hold a number per thread."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

TYPES = {
    "pred": "?", "b16": "u2", "u16": "u2", "s16": "i2", "f16": "f2", "bf16": "u2", "b32": "u4", "u32": "u4",
    "s32": "i4", "f32": "f4", "b64": "u8", "u64": "u8", "s64": "i8", "f64": "f8", "tf32": "u4", "f16x2": "u4",
    "bf16x2": "u4", "u16x2": "u4", "s8": "i1", "u8": "u1", "b8": "u1",
}  # fmt: skip
WHOLE = {"rni": "rint", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}
COMPARED = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def bits(kind: str) -> int:
    return 8 * np.dtype(TYPES[kind]).itemsize


# Functions that expressions call.


def divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Rounded towards zero, as in C."""
    wide_a, wide_b = np.broadcast_arrays(a, np.where(b == 0, 1, b).astype(np.asarray(b).dtype))
    quotient = np.abs(wide_a.astype(np.int64)) // np.abs(wide_b.astype(np.int64))
    return np.where((wide_a < 0) != (wide_b < 0), -quotient, quotient).astype(a.dtype)


def shifted(a: np.ndarray, by: np.ndarray, left: bool) -> np.ndarray:
    """A shift by the width or more leaves zeros, or copies of the sign."""
    by = np.asarray(by)
    most = 8 * a.dtype.itemsize - 1
    inside = np.minimum(by, most).astype(a.dtype)
    if left:
        return np.where(by > most, a.dtype.type(0), a << inside)
    return np.where(by > most, (a >> inside) >> a.dtype.type(1), a >> inside)


def funnel(low: np.ndarray, high: np.ndarray, by: np.ndarray, left: bool, clamp: bool) -> np.ndarray:
    amount = (np.minimum(by, 32) if clamp else by & 31).astype(np.uint64)
    both = (np.asarray(high).astype(np.uint64) << np.uint64(32)) | np.asarray(low).astype(np.uint64)
    found = (both << amount) >> np.uint64(32) if left else both >> amount
    return (found & np.uint64(0xFFFFFFFF)).astype(np.uint32)


def field(a: np.ndarray, start: np.ndarray, length: np.ndarray) -> np.ndarray:
    """``bfe``: some bits of a number; a signed one is extended by their last."""
    unsigned = a.view(f"u{a.dtype.itemsize}").astype(np.uint64)
    start, length = (np.asarray(v).astype(np.uint64) & np.uint64(255) for v in (start, length))
    found = (unsigned >> start) & ((np.uint64(1) << length) - np.uint64(1))
    if a.dtype.kind == "i":
        top = np.uint64(1) << (length - np.uint64(1))
        found = np.where(length > 0, (found ^ top) - top, found)
    return found.astype(np.int64).astype(a.dtype) if a.dtype.kind == "i" else found.astype(a.dtype)


def permuted(a: np.ndarray, b: np.ndarray, order: np.ndarray) -> np.ndarray:
    """``prmt``: four of the eight bytes of two numbers, or copies of their signs."""
    both = (b.astype(np.uint64) << np.uint64(32)) | a.astype(np.uint64)
    order, found = np.asarray(order).astype(np.uint64), np.zeros(a.shape, np.uint64)
    for k in range(4):
        choice = (order >> np.uint64(4 * k)) & np.uint64(15)
        byte = (both >> ((choice & np.uint64(7)) * np.uint64(8))) & np.uint64(255)
        byte = np.where(choice & np.uint64(8), (byte >> np.uint64(7)) * np.uint64(255), byte)
        found |= byte << np.uint64(8 * k)
    return found.astype(np.uint32)


def logic(a: np.ndarray, b: np.ndarray, c: np.ndarray, table: int) -> np.ndarray:
    """``lop3``: any function of three bits."""
    a, b, c = np.broadcast_arrays(a, b, c)
    found = np.zeros(a.shape, np.uint32)
    for k in range(8):
        if table >> k & 1:
            found |= (a if k & 4 else ~a) & (b if k & 2 else ~b) & (c if k & 1 else ~c)
    return found


def to_bf16(x: np.ndarray) -> np.ndarray:
    """To nearest, ties to even, as 16 bits."""
    word = np.asarray(x).view(np.uint32)
    rounded = (word.astype(np.uint64) + 0x7FFF + ((word >> 16) & 1)) >> np.uint64(16)
    return np.where(np.isnan(x), 0x7FFF, rounded).astype(np.uint16)


def from_bf16(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def to_tf32(x: np.ndarray) -> np.ndarray:
    """To nearest, ties away from zero."""
    return (np.asarray(x).view(np.uint32) + np.uint32(0x1000)) & np.uint32(0xFFFFE000)


def packed(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    return low.view(np.uint16).astype(np.uint32) | (high.view(np.uint16).astype(np.uint32) << np.uint32(16))


def integer(x: np.ndarray, kind: str, rounding: str) -> np.ndarray:
    """A float as an integer; what does not fit becomes the nearest that does, NaN becomes zero."""
    limits = np.iinfo(kind)
    whole = getattr(np, WHOLE[rounding])(x.astype(np.float64))
    whole = np.where(np.isnan(whole), 0, whole)
    inside = np.clip(
        whole,
        float(limits.min),
        np.nextafter(float(limits.max), 0) if limits.bits == 64 else float(limits.max),
    )
    return inside.astype(kind)


def leading_zeros(a: np.ndarray) -> np.ndarray:
    return (32 - np.frexp(a.astype(np.float64))[1]).astype(np.uint32)


# Expressions. A function takes the parts of an instruction's name behind its first, and its operands: value(k, kind) is
# the text of operand k as numbers of a kind. It returns the result's text and its kind.

Value = Callable[[int, str], str]
# Kinds of halves: how 16 bits become float32 and return.
HALVES = {
    "bf16": ("from_bf16({})", "to_bf16({})"),
    "f16": ("{}.view('f2').astype('f4')", "{}.astype('f2').view('u2')"),
}
EXPRESSIONS: dict[str, Callable[[list[str], Value], tuple[str, str]]] = {}


def expression(first: str, parts: list[str], value: Value) -> tuple[str, str]:
    """The text and the kind of an instruction's result. Arithmetic on halves is done in float32, and rounded."""
    half = parts[-1].removesuffix("x2") if first != "cvt" else ""
    if half not in HALVES:
        return EXPRESSIONS[first](parts, value)
    wide, narrow = HALVES[half]
    kind = "u32" if parts[-1].endswith("x2") else "u16"

    def widened(k: int, as_kind: str) -> str:
        text = wide.format(value(k, kind) + ".view('u2')") if as_kind != "pred" else value(k, "pred")
        return f"{text}.view('u4')" if as_kind == "u32" else text

    text, found = EXPRESSIONS[first]([*parts[:-1], "f32"], widened)
    if found == "pred":
        return text, found
    text = f"({text}).view('f4')" if found == "u32" else f"({text})"
    return f"{narrow.format(text)}.view('{TYPES[kind]}')", kind


def expresses(*names: str) -> Callable:
    def enter(function: Callable) -> Callable:
        for name in names:
            EXPRESSIONS[name] = lambda parts, value, name=name: function(name, parts, value)
        return function

    return enter


@expresses("add", "sub", "and", "or", "xor")
def _two(name: str, parts: list[str], value: Value) -> tuple[str, str]:
    kind = parts[-1]
    sign = {"add": "+", "sub": "-", "and": "&", "or": "|", "xor": "^"}[name]
    if kind in ("s16x2", "u16x2"):
        return f"({value(0, 'u32')}.view('u2') {sign} {value(1, 'u32')}.view('u2')).view('u4')", "u32"
    return f"{value(0, kind)} {sign} {value(1, kind)}", kind


@expresses("mul", "mad")
def _multiply(name: str, parts: list[str], value: Value) -> tuple[str, str]:
    kind = parts[-1]
    a, b = value(0, kind), value(1, kind)
    if "wide" in parts or "hi" in parts:
        wide = kind[0] + str(2 * bits(kind))
        product = f"{a}.astype('{TYPES[wide]}') * {b}.astype('{TYPES[wide]}')"
        if "hi" in parts:
            assert kind != "u64"
            product = f"(({product}) >> np.array({bits(kind)}, '{TYPES[wide]}')).astype('{TYPES[kind]}')"
        else:
            kind = wide
    else:
        product = f"{a} * {b}"
    return (product if name == "mul" else f"{product} + {value(2, kind)}"), kind


@expresses("fma")
def _fused(name: str, parts: list[str], value: Value) -> tuple[str, str]:
    a, b, c = (value(k, parts[-1]) for k in range(3))
    if parts[-1] == "f32":  # the product of two float32 numbers is exact in float64
        return f"({a}.astype('f8') * {b}.astype('f8') + {c}.astype('f8')).astype('f4')", "f32"
    return f"{a} * {b} + {c}", parts[-1]


@expresses("min", "max")
def _extreme(name: str, parts: list[str], value: Value) -> tuple[str, str]:
    kind = parts[-1]
    if kind == "u16x2":
        a, b = value(0, "u32"), value(1, "u32")
        return f"np.{name}imum({a}.view('u2'), {b}.view('u2')).view('u4')", "u32"
    function = f"f{name}" if kind[0] == "f" and "NaN" not in parts else f"{name}imum"
    return f"np.{function}({value(0, kind)}, {value(1, kind)})", kind


@expresses("div", "rem")
def _divide(name: str, parts: list[str], value: Value) -> tuple[str, str]:
    kind = parts[-1]
    a, b = value(0, kind), value(1, kind)
    if kind[0] == "f":
        return f"{a} / {b}", kind
    return (f"divide({a}, {b})" if name == "div" else f"{a} - divide({a}, {b}) * {b}"), kind


@expresses("neg", "abs", "not", "popc", "clz", "sqrt", "rsqrt", "rcp", "sin", "cos", "ex2", "lg2")
def _one(name: str, parts: list[str], value: Value) -> tuple[str, str]:
    kind = parts[-1]
    a = value(0, kind)
    if kind == "f32" and name in ("neg", "abs"):
        word = value(0, "u32")
        return (f"{word} ^ np.uint32(1 << 31)" if name == "neg" else f"{word} & np.uint32(0x7FFFFFFF)"), "u32"
    text = {
        "neg": f"-{a}", "abs": f"np.abs({a})", "not": f"~{a}", "popc": f"np.bitwise_count({a})", "rcp": f"1 / {a}",
        "clz": f"leading_zeros({a})", "sqrt": f"np.sqrt({a})", "rsqrt": f"1 / np.sqrt({a})", "ex2": f"np.exp2({a})",
        "sin": f"np.sin({a})", "cos": f"np.cos({a})", "lg2": f"np.log2({a})",
    }[name]  # fmt: skip
    return text, "u32" if name in ("popc", "clz") else kind


@expresses("shl", "shr")
def _shift(name: str, parts: list[str], value: Value) -> tuple[str, str]:
    return f"shifted({value(0, parts[-1])}, {value(1, 'u32')}, {name == 'shl'})", parts[-1]


@expresses("shf")
def _funnel(name: str, parts: list[str], value: Value) -> tuple[str, str]:
    a, b, by = (value(k, "u32") for k in range(3))
    return f"funnel({a}, {b}, {by}, {'l' in parts}, {'clamp' in parts})", "u32"


@expresses("bfe")
def _field(name: str, parts: list[str], value: Value) -> tuple[str, str]:
    return f"field({value(0, parts[-1])}, {value(1, 'u32')}, {value(2, 'u32')})", parts[-1]


@expresses("prmt")
def _permute(name: str, parts: list[str], value: Value) -> tuple[str, str]:
    return f"permuted({value(0, 'u32')}, {value(1, 'u32')}, {value(2, 'u32')})", "u32"


@expresses("lop3")
def _logic(name: str, parts: list[str], value: Value) -> tuple[str, str]:
    return f"logic({value(0, 'u32')}, {value(1, 'u32')}, {value(2, 'u32')}, int({value(3, 'u32')}))", "u32"


@expresses("selp")
def _select(name: str, parts: list[str], value: Value) -> tuple[str, str]:
    return f"np.where({value(2, 'pred')}, {value(0, parts[-1])}, {value(1, parts[-1])})", parts[-1]


@expresses("setp")
def _compare(name: str, parts: list[str], value: Value) -> tuple[str, str]:
    kind, how = parts[-1], parts[0]
    a, b = value(0, kind), value(1, kind)
    if how in ("num", "nan"):
        text = f"np.isnan({a}) | np.isnan({b})"
        text = f"~({text})" if how == "num" else text
    elif how in COMPARED:
        text = f"{a} {COMPARED[how]} {b}"
        if how == "ne" and kind[0] == "f":  # an ordered comparison: false for NaN
            text = f"({text}) & ~np.isnan({a}) & ~np.isnan({b})"
    else:  # true for NaN
        text = f"({a} {COMPARED[how[:2]]} {b}) | np.isnan({a}) | np.isnan({b})"
    if len(parts) == 3 and parts[1] in ("and", "or", "xor"):
        text = f"({text}) {dict(zip(('and', 'or', 'xor'), '&|^', strict=True))[parts[1]]} {value(2, 'pred')}"
    return text, "pred"


@expresses("cvt")
def _convert(name: str, parts: list[str], value: Value) -> tuple[str, str]:
    to, start = parts[-2:]
    if to in ("f16x2", "bf16x2"):
        high, low = (value(k, "f32") for k in range(2))
        half = "to_bf16({})" if to == "bf16x2" else "{}.astype('f2')"
        return f"packed({half.format(low)}, {half.format(high)})", "u32"
    a = value(0, start)
    if start == "bf16":
        return f"from_bf16({a}).astype('{TYPES[to]}')", to
    if to == "bf16":
        return f"to_bf16({a}.astype('f4'))", "u16"
    if to == "tf32":
        return f"to_tf32({a})", "u32"
    if start[0] == "f" and to[0] in "us":
        return f"integer({a}, '{TYPES[to]}', '{parts[0]}')", to
    if start == to and start[0] == "f":  # to a whole number
        return f"np.{WHOLE[parts[0]]}({a})", to
    return f"{a}.astype('{TYPES[to]}')", to
