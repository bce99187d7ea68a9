"""One warp that runs a piece of inline PTX, with operands $0, $1 and so on, on memory that it is given."""

from __future__ import annotations

import re
from functools import cache

import numpy as np

from emulator.machine import Threads, places_of
from emulator.memory import Global, Shared
from emulator.ptx import parse
from emulator.translate import Translation, translate


class Warp:
    """Shared memory is an array of bytes, whose addresses begin at 0."""

    def __init__(self, memory: np.ndarray) -> None:
        self.shared = Shared(1, len(memory), start=0)
        self.shared.bytes = memory

    def run(self, code: str, operands: dict[int, np.ndarray]) -> dict[str, np.ndarray]:
        """Run it with these operands; the 32-bit registers of all operands afterwards."""
        translated = _translated(code)
        self.shared.barrier(np.zeros(1, np.int64))
        threads = Threads(
            translated, [], Global([]), self.shared, places_of(np.zeros(1, np.int64), [0], 1, (1, 1, 1))
        )
        for k, value in operands.items():
            if f"%o{k}" in translated.numbers:
                threads.R[translated.numbers[f"%o{k}"]] = _bits(value)
        with np.errstate(all="ignore"):
            threads.run()
        return {
            name.replace("%o", "$"): threads.R[place]
            for name, place in translated.numbers.items()
            if re.fullmatch(r"%o\d+", name)
        }


@cache
def _translated(code: str) -> Translation:
    code = re.sub(r"\$(\d+)", r"%o\1", code)
    return translate(parse(f".entry inline() {{ .reg .b32 %o<99>; {code} ret; }}"))


def _bits(value: np.ndarray) -> np.ndarray:
    if value.dtype.kind == "f":
        return value.astype(np.float32).view(np.uint32)
    return (value & 0xFFFFFFFF).astype(np.uint32)
