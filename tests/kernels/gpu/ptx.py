"""A warp that runs the inline PTX of `gluon.half_rounds` in NumPy: 32 lanes at a time, from NVIDIA's description."""

from __future__ import annotations

import re

import numpy as np

LANES = np.arange(32)


class Warp:
    """Registers hold 32 bits for each lane; shared memory is an array of bytes that several warps may share."""

    def __init__(self, memory: np.ndarray, thread: int = 0) -> None:
        self.memory, self.thread = memory, thread
        self.registers: dict[str, np.ndarray] = {}
        self.conflicts: list[int] = []  # how often eight rows that are accessed together fell into one bank

    def run(self, code: str, operands: dict[int, np.ndarray]) -> dict[str, np.ndarray]:
        """Run the instructions with these operands ($k); the registers afterwards."""
        self.registers = {f"${k}": _bits(value) for k, value in operands.items()}
        for line in code.strip("{} ").split(";"):
            words = line.strip()
            if words and not words.startswith(".reg"):
                self._do(words)
        return self.registers

    def _do(self, words: str) -> None:
        active = np.ones(32, bool)
        if words.startswith("@"):
            guard, words = words[1:].split(" ", 1)
            active = self.registers[guard].astype(bool)
        name, rest = words.split(" ", 1)
        arguments = [a.strip() for a in re.split(r",\s*(?![^{]*\})", rest)]
        first = name.split(".")[0]
        getattr(self, f"_{first}")(name, arguments, active)

    def _value(self, word: str) -> np.ndarray:
        if word.startswith("0f"):
            return np.full(32, int(word[2:], 16), np.uint32)
        if re.fullmatch(r"-?\d+|0x[0-9a-f]+", word):
            return np.full(32, int(word, 0) & 0xFFFFFFFF, np.uint32)
        return self.registers[word]

    def _list(self, word: str) -> list[str]:
        return [w.strip() for w in word.strip("{} ").split(",")]

    def _address(self, word: str) -> np.ndarray:
        return self._value(word.strip("[]")).astype(np.int64)

    def _mov(self, name: str, arguments: list[str], active: np.ndarray) -> None:
        to, value = arguments
        if to.startswith("{"):  # halves of a word
            low, high = self._list(to)
            self.registers[low], self.registers[high] = self._value(value) & 0xFFFF, self._value(value) >> 16
        else:
            self.registers[to] = self._value(value)

    def _integers(self, name: str, arguments: list[str], active: np.ndarray) -> None:
        to, *values = arguments
        a, b = (self._value(v) for v in values)
        operation = name.split(".")[0]
        if operation == "shr" and ".s32" in name:
            found = (a.view(np.int32) >> b.view(np.int32)).view(np.uint32)
        elif name == "max.u16x2":
            found = np.maximum(a & 0xFFFF, b & 0xFFFF) | (np.maximum(a >> 16, b >> 16) << 16)
        else:
            found = {
                "xor": np.bitwise_xor, "and": np.bitwise_and, "add": np.add, "sub": np.subtract,
                "shl": np.left_shift, "shr": np.right_shift, "max": np.maximum,
            }[operation](a, b)  # fmt: skip
        self.registers[to] = found.astype(np.uint32)

    _xor = _and = _add = _sub = _shl = _shr = _max = _integers

    def _mul(self, name: str, arguments: list[str], active: np.ndarray) -> None:
        a, b = (self._value(v).view(np.float32) for v in arguments[1:])
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            self.registers[arguments[0]] = (a * b).view(np.uint32)

    def _setp(self, name: str, arguments: list[str], active: np.ndarray) -> None:
        assert name == "setp.ge.u32"
        self.registers[arguments[0]] = self._value(arguments[1]) >= self._value(arguments[2])

    def _cvt(self, name: str, arguments: list[str], active: np.ndarray) -> None:
        to, *values = arguments
        if name == "cvt.f32.f16":
            half = self._value(values[0]).astype(np.uint16).view(np.float16)
            self.registers[to] = half.astype(np.float32).view(np.uint32)
            return
        kind = "bf16" if "bf16x2" in name else "fp16"
        high, low = (_rounded(self._value(v).view(np.float32), kind) for v in values)
        self.registers[to] = (low | (high << 16)).astype(np.uint32)

    def _st(self, name: str, arguments: list[str], active: np.ndarray) -> None:
        for lane in np.flatnonzero(active):
            at = self._address(arguments[0])[lane]
            self.memory[at : at + 4] = self._value(arguments[1])[lane : lane + 1].view(np.uint8)

    def _red(self, name: str, arguments: list[str], active: np.ndarray) -> None:
        for at, value in zip(self._address(arguments[0]), self._value(arguments[1]), strict=True):
            word = self.memory[at : at + 4].view(np.uint32)
            word[0] = max(word[0], value)

    def _rows(self, address: np.ndarray, name: str) -> list[np.ndarray]:
        """Eight numbers at each lane's address, as many times eight lanes as the instruction has matrices."""
        count = int(name.split(".x")[1][0])
        address = address[: 8 * count]
        for eight in address.reshape(count, 8):
            assert not (eight % 16).any()
            self.conflicts.append(int(np.bincount(eight // 16 % 8).max()))
        return [self.memory[at : at + 16].view(np.uint16) for at in address]

    def _ldmatrix(self, name: str, arguments: list[str], active: np.ndarray) -> None:
        rows = self._rows(self._address(arguments[1]), name)
        for k, to in enumerate(self._list(arguments[0])):
            matrix = np.array(rows[8 * k : 8 * k + 8])
            matrix = matrix.T if ".trans" in name else matrix
            low, high = matrix[LANES // 4, LANES % 4 * 2], matrix[LANES // 4, LANES % 4 * 2 + 1]
            self.registers[to] = low.astype(np.uint32) | (high.astype(np.uint32) << 16)

    def _stmatrix(self, name: str, arguments: list[str], active: np.ndarray) -> None:
        rows = self._rows(self._address(arguments[0]), name)
        for k, word in enumerate(self._list(arguments[1])):
            matrix = np.empty((8, 8), np.uint16)
            matrix[LANES // 4, LANES % 4 * 2] = self._value(word) & 0xFFFF
            matrix[LANES // 4, LANES % 4 * 2 + 1] = self._value(word) >> 16
            for row, values in zip(
                rows[8 * k : 8 * k + 8], matrix.T if ".trans" in name else matrix, strict=True
            ):
                row[:] = values

    def _mma(self, name: str, arguments: list[str], active: np.ndarray) -> None:
        assert name == "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
        g, t = LANES // 4, LANES % 4
        A, B = np.zeros((16, 16), np.float32), np.zeros((16, 8), np.float32)
        for k, word in enumerate(self._list(arguments[1])):
            for half in range(2):
                A[g + k % 2 * 8, 2 * t + half + k // 2 * 8] = self._half(word, half)
        for k, word in enumerate(self._list(arguments[2])):
            for half in range(2):
                B[2 * t + half + 8 * k, g] = self._half(word, half)
        D = A @ B
        for k, (to, start) in enumerate(zip(self._list(arguments[0]), self._list(arguments[3]), strict=True)):
            before = self._value(start).view(np.float32)
            self.registers[to] = (before + D[g + k // 2 * 8, 2 * t + k % 2]).view(np.uint32)

    def _half(self, word: str, which: int) -> np.ndarray:
        return ((self._value(word) >> (16 * which)) & 0xFFFF).astype(np.uint16).view(np.float16)


def _bits(value: np.ndarray) -> np.ndarray:
    return (
        value.astype(np.float32).view(np.uint32)
        if value.dtype.kind == "f"
        else (value & 0xFFFFFFFF).astype(np.uint32)
    )


def _rounded(x: np.ndarray, kind: str) -> np.ndarray:
    """To nearest, as 16 bits."""
    if kind == "fp16":
        with np.errstate(over="ignore"):
            return x.astype(np.float16).view(np.uint16).astype(np.uint32)
    bits = x.view(np.uint32)
    return (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
