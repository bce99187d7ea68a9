"""A kernel as blocks: Python functions for code without jumps, and how each block ends."""

from __future__ import annotations

import linecache
import re
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from emulator import arithmetic
from emulator.arithmetic import TYPES, expression
from emulator.ptx import Address, Instruction, Kernel

SPECIAL = {f"%{name}.{axis}" for name in ("tid", "ntid", "ctaid", "nctaid") for axis in "xyz"} | {"%laneid"}
ENDS = {"bra", "ret", "exit"}
NOTHING = {"membar", "fence", "griddepcontrol", "nanosleep", "discard", "prefetch"}

_blocks = count()


class Block(NamedTuple):
    """``run(threads, R, m)`` does it for the threads of m, or for all where that is None."""

    run: Any
    end: Instruction | None  # a jump, a return, a barrier; None where the next block follows


class Translation(NamedTuple):
    blocks: list[Block]
    starts: dict[str, int]  # labels → blocks
    numbers: dict[str, int]  # registers → their places in R
    kinds: list[str]  # their types


def translate(kernel: Kernel) -> Translation:
    """The blocks of a kernel, in order."""
    return _Translator(kernel).translate()


def ends_block(i: Instruction) -> bool:
    first, *parts = i.name.split(".")
    return first in ENDS or (first in ("bar", "barrier") and "warp" not in parts)


class _Translator:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.numbers = {name: k for k, name in enumerate(kernel.registers)}
        self.constants: dict[str, Any] = {}
        self.products: dict[
            str, tuple[object, ...]
        ] = {}  # float32 registers that hold a product of two others

    def translate(self) -> Translation:
        blocks: list[Block] = []
        starts: dict[str, int] = {}
        code: list[Instruction] = []
        for item in self.kernel.code:
            if isinstance(item, str):
                if code:
                    blocks.append(self._block(code, None))
                    code = []
                starts[item] = len(blocks)
            elif ends_block(item):
                blocks.append(self._block(code, item))
                code = []
            else:
                code.append(item)
        blocks.append(self._block(code, None))
        return Translation(blocks, starts, self.numbers, list(self.kernel.registers.values()))

    def _block(self, code: list[Instruction], end: Instruction | None) -> Block:
        lines = ["def run(t, R, m):", "    pass"]
        self.products = {}
        for i in code:
            try:
                new = self._lines(i)
            except (KeyError, AssertionError, ValueError) as error:
                raise NotImplementedError(f"{i}: {error!r}") from error
            lines += [f"    {line}" for line in new]
        space = {"np": np, **vars(arithmetic), **self.constants}
        name = f"<{self.kernel.name}, block {next(_blocks)}>"
        linecache.cache[name] = (0, None, [f"{line}\n" for line in lines], name)  # for tracebacks
        exec(compile("\n".join(lines), name, "exec"), space)
        return Block(space["run"], end)

    def _lines(self, i: Instruction) -> list[str]:
        first, *parts = i.name.split(".")
        if first in NOTHING or i.name.startswith("bar.warp"):
            return []
        mask = "m"
        if i.guard:
            register = self._register(i.guard.lstrip("!"))
            mask = f"t.both({'~' if i.guard[0] == '!' else ''}{register}, m)"
        special = getattr(self, f"_{first}", None)
        if special is not None:
            return special(parts, i.operands, mask)
        i = self._contracted(i)
        first, *parts = i.name.split(".")
        text, kind = expression(first, parts, lambda k, kind: self._value(i.operands[1 + k], kind))
        return [self._put(i.operands[0], text, kind, mask)]

    def _contracted(self, i: Instruction) -> Instruction:
        """A sum with a product as the one fused instruction that the assembler makes of them."""
        if i.name == "mul.f32" and not i.guard:
            self.products[str(i.operands[0])] = i.operands[1:]
        elif i.name in ("add.f32", "sub.f32"):
            to, a, b = i.operands
            if str(a) in self.products:
                c = f"-{b}" if i.name == "sub.f32" else b
                return Instruction(i.guard, "fma.rn.f32", (to, *self.products[str(a)], c))
            if str(b) in self.products:
                left, right = self.products[str(b)]
                left = f"-{left}" if i.name == "sub.f32" else left
                return Instruction(i.guard, "fma.rn.f32", (to, left, right, a))
        return i

    # Operands

    def _register(self, name: object) -> str:
        return f"R[{self.numbers[str(name)]}]"

    def _constant(self, value: Any) -> str:
        name = f"k{len(self.constants)}"
        self.constants[name] = value
        return name

    def _value(self, operand: object, kind: str) -> str:
        """An operand as numbers of a kind."""
        text = str(operand)
        if text.startswith("!"):
            return f"~{self._value(text[1:], kind)}"
        if text.startswith("-") and text[1:] in self.numbers:
            return f"-{self._value(text[1:], kind)}"
        if text in self.numbers:
            stored = TYPES[self.kernel.registers[text]]
            wanted = TYPES[kind]
            if np.dtype(stored).itemsize > np.dtype(wanted).itemsize:  # the low bits
                low = self._constant(np.dtype(f"u{np.dtype(wanted).itemsize}"))
                return f"{self._register(text)}.astype({low}).view('{wanted}')"
            same = stored == wanted
            return self._register(text) if same else f"{self._register(text)}.view('{wanted}')"
        if text in SPECIAL:
            return f"t.special[{text!r}]" + ("" if TYPES[kind] == "u4" else f".astype('{TYPES[kind]}')")
        if text.startswith("global_smem"):
            return self._constant(np.full(1, 1024, TYPES[kind]))
        return self._constant(_number(text, kind))

    def _put(self, to: object, text: str, kind: str, mask: str) -> str:
        """A line that assigns an expression to a register."""
        if str(to) == "_":
            return "pass"
        stored = TYPES[self.kernel.registers[str(to)]]
        if np.dtype(TYPES[kind]).itemsize < np.dtype(stored).itemsize:
            extended = stored.replace("u", "i") if TYPES[kind][0] == "i" else stored
            text = f"np.asarray({text}).astype('{extended}')"
        return f"t.put(R, {self.numbers[str(to)]}, {text}, {stored!r}, {mask})"

    def _address(self, operand: object) -> str:
        assert isinstance(operand, Address)
        if operand.base is None:
            return f"t.all(np.uint32({operand.offset}))"
        kind = self.kernel.registers.get(operand.base, "b32")
        base = self._value(operand.base, kind)
        return f"t.all({base} + {self._constant(_number(str(operand.offset), kind))})"

    def _list(self, operand: object) -> list[object]:
        return list(operand) if isinstance(operand, tuple) and not isinstance(operand, Address) else [operand]

    # Instructions that are not one expression

    def _mov(self, parts: list[str], operands: Any, mask: str) -> list[str]:
        to, value = operands
        whole = self._list(to) if len(self._list(to)) > 1 else self._list(value)
        if len(whole) == 1:
            return [self._put(to, self._value(value, parts[-1]), parts[-1], mask)]
        kind = {"b32": "b16", "b64": "b32"}[parts[-1]]
        if whole == self._list(to):
            halves = f"t.all({self._value(value, parts[-1])}).view('{TYPES[kind]}')"
            return [f"v = {halves}"] + [
                self._put(w, f"v[{k}::2].copy()", kind, mask) for k, w in enumerate(whole)
            ]
        halves = ", ".join(f"t.all({self._value(w, kind)})" for w in whole)
        return [
            self._put(to, f"np.stack([{halves}], axis=1).view('{TYPES[parts[-1]]}').ravel()", parts[-1], mask)
        ]

    def _ld(self, parts: list[str], operands: Any, mask: str) -> list[str]:
        to, kind = self._list(operands[0]), parts[-1]
        if parts[0] == "param":
            value = f"t.parameters[{list(self.kernel.parameters).index(operands[1].base)}]"
            return [self._put(to[0], f"np.full(1, {value}).astype('{TYPES[kind]}')", kind, mask)]
        lines = [
            f"M = {mask}",
            f"v = t.load({parts[0]!r}, {self._address(operands[1])}, {len(to)}, {TYPES[kind]!r}, M)",
        ]
        return lines + [self._put(w, f"v[{k}]", kind, "M") for k, w in enumerate(to)]

    def _st(self, parts: list[str], operands: Any, mask: str) -> list[str]:
        values = ", ".join(f"t.all({self._value(v, parts[-1])})" for v in self._list(operands[1]))
        space = "shared" if "shared" in parts else "global"
        return [f"t.store({space!r}, {self._address(operands[0])}, [{values}], {mask})"]

    def _red(self, parts: list[str], operands: Any, mask: str) -> list[str]:
        values = ", ".join(f"t.all({self._value(v, parts[-1])})" for v in self._list(operands[1]))
        how = next(p for p in parts if p in ("add", "max", "min", "or", "and"))
        return [f"t.reduce({parts[0]!r}, {self._address(operands[0])}, [{values}], {how!r}, {mask})"]

    def _cp(self, parts: list[str], operands: Any, mask: str) -> list[str]:
        assert parts[0] == "async"
        if parts[1] == "commit_group":
            return [f"t.commit({mask})"]
        if parts[1] == "wait_group":
            return [f"t.wait({int(operands[0])}, {mask})"]
        if parts[1] == "wait_all":
            return [f"t.wait(-1, {mask})"]
        assert parts[2:4] == ["shared", "global"]
        size = int(str(operands[2]), 0)
        taken = (
            f"t.all({self._value(operands[3], 'u32')})" if len(operands) > 3 else f"t.all(np.uint32({size}))"
        )
        return [
            f"t.send({self._address(operands[0])}, {self._address(operands[1])}, {size}, {taken}, {mask})"
        ]

    def _shfl(self, parts: list[str], operands: Any, mask: str) -> list[str]:
        a, by, limits = (f"t.all({self._value(o, 'u32')})" for o in operands[1:4])
        to, *inside = str(operands[0]).split("|")
        lines = [f"v = t.shuffle({a}, {by}, {limits}, {parts[1]!r})", self._put(to, "v[0]", "u32", mask)]
        return lines + [self._put(p, "v[1]", "pred", mask) for p in inside]

    def _vote(self, parts: list[str], operands: Any, mask: str) -> list[str]:
        value = f"t.all({self._value(operands[1], 'pred')})"
        kind = "u32" if parts[1] == "ballot" else "pred"
        return [f"M = {mask}", self._put(operands[0], f"t.vote({value}, {parts[1]!r}, M)", kind, "M")]

    def _redux(self, parts: list[str], operands: Any, mask: str) -> list[str]:
        value = f"t.all({self._value(operands[1], parts[-1])})"
        return [f"M = {mask}", self._put(operands[0], f"t.redux({value}, {parts[1]!r}, M)", parts[-1], "M")]

    def _mma(self, parts: list[str], operands: Any, mask: str) -> list[str]:
        shape, kind = parts[2], parts[-2]
        assert parts[:2] == ["sync", "aligned"]
        assert parts[3:] == ["row", "col", "f32", kind, kind, "f32"]
        given = [", ".join(f"t.all({self._value(w, 'b32')})" for w in o) for o in operands[1:]]
        lines = [f"v = t.multiply({shape!r}, {kind!r}, [{given[0]}], [{given[1]}], [{given[2]}])"]
        return lines + [self._put(w, f"v[{k}]", "b32", mask) for k, w in enumerate(operands[0])]

    def _ldmatrix(self, parts: list[str], operands: Any, mask: str) -> list[str]:
        to = self._list(operands[0])
        transposed = "trans" in parts
        lines = [
            f"M = {mask}",
            f"v = t.load_matrices({self._address(operands[1])}, {len(to)}, {transposed}, M)",
        ]
        return lines + [self._put(w, f"v[{k}]", "b32", "M") for k, w in enumerate(to)]

    def _stmatrix(self, parts: list[str], operands: Any, mask: str) -> list[str]:
        words = ", ".join(f"t.all({self._value(w, 'b32')})" for w in self._list(operands[1]))
        return [f"t.store_matrices({self._address(operands[0])}, [{words}], {'trans' in parts}, {mask})"]


def _number(text: str, kind: str) -> Any:
    """A literal as one number of a kind."""
    dtype = np.dtype(TYPES[kind])
    if found := re.fullmatch(r"0([fFdD])([0-9A-Fa-f]+)", text):
        word = np.array(int(found[2], 16), "u4" if found[1] in "fF" else "u8")
        return (
            word.view(word.dtype.str.replace("u", "f")).astype(dtype)[()] if dtype.kind == "f" else word[()]
        )
    value = int(text.rstrip("U"), 0)
    if dtype.kind == "f":
        return np.array(value & (2 ** (8 * dtype.itemsize) - 1), f"u{dtype.itemsize}").view(dtype)[()]
    if dtype.kind == "b":
        return np.bool_(value)
    return np.array(value & (2 ** (8 * dtype.itemsize) - 1), f"u{dtype.itemsize}").view(dtype)[()]


__all__ = ["Block", "Translation", "translate"]
