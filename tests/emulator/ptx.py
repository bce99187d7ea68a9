"""The text of a PTX kernel as instructions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

REGISTERS = re.compile(r"\.reg\s+\.(\w+)\s+(.*)", re.S)
LABEL = re.compile(r"([$\w]+):")
WORD = re.compile(r"[A-Za-z_$%][\w$%]*")


class Address(NamedTuple):
    """[base + offset]; without a base an offset into shared memory."""

    base: str | None
    offset: int


class Instruction(NamedTuple):
    guard: str  # a register, with "!" in front where it is negated; "" where there is none
    name: str  # "fma.rn.f32"
    operands: tuple[object, ...]  # names and numbers as text, lists of them as tuples, addresses

    def __str__(self) -> str:
        return f"{self.guard and '@' + self.guard} {self.name} {self.operands}"


class Kernel(NamedTuple):
    name: str
    parameters: dict[str, str]  # types, in order: "u64", "u32", "f32"
    registers: dict[str, str]  # types: "pred", "b16", "b32", "b64"
    code: list[Instruction | str]  # a string is a label


def parse(text: str) -> Kernel:
    """The one kernel of a PTX file."""
    text = re.sub(r"//[^\n]*", "", text)
    text = re.sub(r"^\s*\.(loc|file)[^\n]*", "", text, flags=re.M)
    entry = re.search(r"\.entry\s+(\w+)\s*\((.*?)\)", text, re.S)
    assert entry is not None
    parameters = {}
    for one in filter(None, map(str.strip, entry[2].split(","))):
        words = one.split()
        parameters[words[-1]] = words[1].lstrip(".")
    return Body(text[text.index("{", entry.end()) :]).kernel(entry[1], parameters)


class Body:
    """What stands between the braces of a kernel; braces inside are scopes of inline code with their own registers."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.registers: dict[str, str] = {}
        self.families: list[tuple[str, str]] = []  # %r<469>: the beginning of their names, and the type
        self.scopes: list[dict[str, str]] = []  # names in the text → names of ours
        self.opened = 0

    def kernel(self, name: str, parameters: dict[str, str]) -> Kernel:
        code: list[Instruction | str] = []
        for statement in self._statements():
            if LABEL.fullmatch(statement):
                code.append(statement[:-1])
            elif found := REGISTERS.fullmatch(statement):
                self._declare(found[1], found[2])
            elif not statement.startswith(".pragma"):
                code.append(self._instruction(statement))
        return Kernel(name, parameters, self.registers, code)

    def _statements(self) -> Iterator[str]:
        at, text = 0, self.text
        while True:
            while text[at].isspace():
                at += 1
            if text[at] == "{":
                self.opened += 1
                self.scopes.append({})
                at += 1
            elif text[at] == "}":
                self.scopes.pop()
                at += 1
                if not self.scopes:
                    return
            elif text[at] == ";":
                at += 1
            elif label := LABEL.match(text, at):
                yield label[0]
                at = label.end()
            else:
                end = text.index(";", at)
                yield " ".join(text[at:end].split())
                at = end + 1

    def _declare(self, kind: str, names: str) -> None:
        kind = {"f32": "b32", "u32": "b32", "s32": "b32", "f64": "b64", "u64": "b64", "u16": "b16"}.get(
            kind, kind
        )
        for name in map(str.strip, names.split(",")):
            family = re.fullmatch(r"(%?\w+)<(\d+)>", name)
            if family and name.startswith("%"):
                self.families.append((family[1], kind))
                continue
            for each in [f"{family[1]}{k}" for k in range(int(family[2]))] if family else [name]:
                own = self.scopes[-1][each] = f"{each}@{self.opened}"
                self.registers[own] = kind

    def _instruction(self, text: str) -> Instruction:
        guard = ""
        if text.startswith("@"):
            guard, text = text[1:].split(" ", 1)
            guard = ("!" if guard.startswith("!") else "") + str(self._operand(guard.lstrip("!")))
        name, _, rest = text.partition(" ")
        operands = re.findall(r"\{[^}]*\}|\[[^\]]*\]|[^,\s][^,]*", rest)
        return Instruction(guard, name, tuple(self._operand(o.strip()) for o in operands))

    def _operand(self, text: str) -> object:
        if text.startswith("{"):
            return tuple(self._operand(part.strip()) for part in text.strip("{} ").split(","))
        if text.startswith("["):
            parts = [part.strip() for part in text.strip("[] ").split("+")]
            offset = sum(int(part, 0) for part in parts if not WORD.match(part))
            base = [self._operand(part) for part in parts if WORD.match(part)]
            return Address(str(base[0]) if base else None, offset)
        for scope in reversed(self.scopes):
            if text in scope:
                return scope[text]
        if text.startswith("%") and text not in self.registers:
            for start, kind in self.families:
                if re.fullmatch(re.escape(start) + r"\d+", text):
                    self.registers[text] = kind
        return text
