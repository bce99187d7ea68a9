"""The inline PTX of rounds in half precision, run by a warp in NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from emulator.inline import Warp
from kernels.gpu.grouping import free_groups

pytest.importorskip("triton", reason="the GPU back end needs Triton")

from swallowtail.kernels import reference
from swallowtail.kernels.gpu.gluon import half_code
from swallowtail.kernels.gpu.half_plan import SPARE, entries, group_places, half_plan, places, rows
from swallowtail.wiring import Butterfly, Wiring

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
LANE = np.arange(32)


def code_of(function, *arguments: object) -> str:
    """PTX of a function that the compiler runs."""
    found = function(*arguments)
    return getattr(found, "value", found)


def piece_of(place: np.ndarray, piece: np.ndarray | int, lanes: int) -> np.ndarray:
    """Where a piece of eight numbers of a row lies, as `gluon.half_rounds` has it."""
    turned = code_of(half_code.turned, lanes)
    return (place ^ (piece & turned) * 16) + (piece & ~turned) * 16


class Tile:
    """A program's shared memory, and vectors on their way in and out."""

    def __init__(self, x: torch.Tensor, lanes: int, wiring: Wiring | None = None) -> None:
        self.x, self.lanes, self.n = x, lanes, x.shape[1]
        self.plan = half_plan(wiring or Butterfly(self.n), 4, complete=False)
        self.entries = entries(self.plan, self.n, lanes, 32)
        self.kind = "bf16" if x.dtype == torch.bfloat16 else "fp16"
        self.size = rows(self.n) * lanes * 2
        self.memory = np.zeros(self.size + 1024, np.uint8)
        self.warp = Warp(self.memory)

    def pieces(self):
        """For each 32 coordinates of eight vectors: where they are, and the warp's addresses."""
        for vectors in range(0, self.lanes, 8):
            for start in range(0, self.n, 32):
                yield (
                    vectors,
                    start,
                    piece_of(self.entries[start // 32].astype(np.int64), vectors // 8, self.lanes),
                )

    def run(self, code: str, operands: dict[int, np.ndarray]) -> dict[str, np.ndarray]:
        return self.warp.run(code, operands)

    def numbers(self, vectors: int, start: int) -> list[np.ndarray]:
        """Four words of each lane: eight neighbours of a vector."""
        bits = np.zeros((self.lanes, -(-self.n // 32) * 32), np.int64)
        bits[:, : self.n] = self.x.view(torch.int16).numpy().astype(np.int64) & 0xFFFF
        block = bits[vectors : vectors + 8, start : start + 32].reshape(32, 8)
        return [block[:, 2 * k] | (block[:, 2 * k + 1] << 16) for k in range(4)]

    def enter(self, exponents: np.ndarray | None = None) -> None:
        code = code_of(half_code.enter_code, self.kind, exponents is not None)
        for vectors, start, address in self.pieces():
            own = self.size + 4 + (vectors + LANE // 4) * 4
            third = np.full(32, self.size) if exponents is None else exponents[vectors + LANE // 4]
            given = {4: address, 12: own, 20: third}
            self.run(code, given | {28 + k: w for k, w in enumerate(self.numbers(vectors, start))})

    def words(self) -> np.ndarray:
        """One for the tile, then one for each vector."""
        return self.memory[self.size : self.size + 4 + 4 * self.lanes].view(np.uint32)

    def leave(self, exponents: np.ndarray) -> np.ndarray:
        factors = 2 if np.abs(exponents).max() > 100 else 1 if exponents.any() else 0
        code = code_of(half_code.leave_code, self.kind, factors)
        found = np.zeros((self.lanes, -(-self.n // 32) * 32), np.uint16)
        for vectors, start, address in self.pieces():
            registers = self.run(code, {4: address, 12: exponents[vectors + LANE // 4]})
            block = np.array([[registers[f"${k}"] & 0xFFFF, registers[f"${k}"] >> 16] for k in range(4)])
            found[vectors : vectors + 8, start : start + 32] = block.transpose(2, 0, 1).reshape(8, 32)
        y = torch.from_numpy(found[:, : self.n].view(np.int16).copy()).view(DTYPES[self.kind])
        return y.double().numpy()


def vectors(lanes: int, n: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(lanes, n, generator=torch.Generator().manual_seed(0)).to(dtype)


@pytest.mark.parametrize("kind", DTYPES)
@pytest.mark.parametrize(("lanes", "n"), [(64, 48), (48, 104), (32, 96), (24, 128), (16, 512)])
def test_vectors_go_in_and_out(lanes, n, kind):
    x = vectors(lanes, n, DTYPES[kind])
    tile = Tile(x, lanes)
    tile.enter()
    assert (tile.words() == [0] + [1] * lanes).all()  # none too large, none too small
    for c in (0, 1, n // 2, n - 1):  # where the description says
        for vector in (0, 9, lanes - 1):
            at = int(piece_of(places(tile.plan.slot[c : c + 1], lanes)[0], vector // 8, lanes))
            stored = tile.memory[at : at + 16].view(np.float16)[vector % 8]
            assert stored == pytest.approx(float(x[vector, c]), abs=2.0**-24, rel=2.0**-11)
    np.testing.assert_allclose(
        tile.leave(np.zeros(lanes, np.int64)), x.double().numpy(), rtol=2.0**-11, atol=2**-24
    )
    assert tile.warp.shared.conflicts == 1  # eight rows have eight banks


@pytest.mark.parametrize(
    ("kind", "power", "fits"),
    [
        ("bf16", 7, False), ("bf16", -8, False), ("bf16", 4, True), ("bf16", -120, False), ("bf16", 127, False),
        ("fp16", 12, False), ("fp16", -14, False),
    ],
)  # fmt: skip
def test_vectors_far_from_one_are_found_and_scaled(kind, power, fits):
    x = vectors(16, 32, torch.float32)
    x = x / x.abs().amax(1, keepdim=True)
    x[3] *= 2.0**power
    x = x.to(DTYPES[kind])
    tile = Tile(x, 16)
    tile.enter()
    large, *own = tile.words()
    assert (not large and all(own)) == fits
    measure = code_of(half_code.measure_code, kind)
    for first, start, _ in tile.pieces():
        own_word = tile.size + 4 + (first + LANE // 4) * 4
        tile.run(measure, {4: own_word} | {12 + k: w for k, w in enumerate(tile.numbers(first, start))})
    bits, bias = half_code.BITS[kind]
    exponents = np.clip((tile.words()[1:].astype(np.int64) >> bits) - bias, -118, 127) - half_code.USUAL
    tile.enter(-exponents)
    stored = np.abs(tile.memory[: 32 * 32].view(np.float16).astype(float)).max()
    assert 2**5 < stored < 2**7
    np.testing.assert_allclose(
        tile.leave(exponents), x.double().numpy(), rtol=2.0**-10, atol=2.0 ** (power - 20)
    )


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("lanes", [16, 24, 32, 48, 64])
@pytest.mark.parametrize("wiring", [Butterfly(64), free_groups(72, 16, 3)], ids=["butterfly", "groups"])
def test_steps_are_the_rotation(wiring, lanes, parts):
    x = vectors(lanes, wiring.n, torch.float16)
    theta = np.linspace(-3, 3, wiring.n_rotations)
    tile = Tile(x, lanes, wiring)
    plan = tile.plan
    tile.enter()
    tile.memory[tile.size - SPARE * 2 * lanes : tile.size] = 0
    code = code_of(half_code.step_code, lanes, parts)
    place = group_places(plan, wiring.n, lanes)
    for q in range(len(plan.coordinates)):
        m = np.eye(16)
        for partner, angle in zip(plan.partner[:, q], plan.angle[:, q], strict=True):
            t = np.where(angle != 0, theta[np.abs(angle) - 1], 0.0)[:, None]
            m = np.cos(t) * m - np.sign(angle)[:, None] * np.sin(t) * m[partner]  # Qᵀ's levels in order
        row = piece_of(place[q][LANE % 16], LANE // 16, lanes)
        registers = fragments(m, parts)
        count = 4 * parts
        tile.run(code, {count: row} | {2 * count + k: registers[:, k] for k in range(count)})
    y = tile.leave(np.zeros(lanes, np.int64))
    expected = reference.rotate(wiring, torch.tensor(theta)[None], x.double()[None], True)[0].numpy()
    error = np.linalg.norm(y - expected) / np.linalg.norm(expected)
    assert error < (6e-4 if parts == 2 else 9e-4)


def fragments(m: np.ndarray, parts: int) -> np.ndarray:  # shape: (32, 4 · parts), words
    """A matrix as tensor cores take it: lane 4 g + t has columns 2 t, 2 t + 1 and those plus 8, of rows g and g + 8."""
    leading = m.astype(np.float16)
    found = []
    for part in [leading, (m - leading).astype(np.float16)][:parts]:
        bits = part.view(np.uint16).astype(np.int64)
        for k in range(4):
            row, column = LANE // 4 + k % 2 * 8, LANE % 4 * 2 + k // 2 * 8
            found.append(bits[row, column] | (bits[row, column + 1] << 16))
    return np.array(found).T
