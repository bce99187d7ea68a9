"""Threads that go different ways, barriers and the grid."""

from __future__ import annotations

from typing import Any

import numpy as np

from emulator import warp
from emulator.memory import Global, Shared
from emulator.ptx import Instruction
from emulator.translate import Translation

Mask = np.ndarray | None  # which threads; None for all
COMBINED = {"add": np.add, "max": np.maximum, "min": np.minimum, "or": np.bitwise_or, "and": np.bitwise_and}


class Threads:
    """Some warps of some programs, in step: what the blocks of a `Translation` call."""

    def __init__(
        self,
        code: Translation,
        parameters: list[Any],
        space: Global,
        shared: Shared,
        special: dict[str, np.ndarray],
    ) -> None:
        self.code, self.parameters, self.memory, self.shared, self.special = (
            code,
            parameters,
            space,
            shared,
            special,
        )
        self.count = len(special["%laneid"])
        self.program, self.warp = special["program"], special["%tid.x"] // 32
        noise = np.random.default_rng(0)  # registers begin with anything
        self.R = [
            noise.integers(0, 2, self.count).astype(bool)
            if kind == "pred"
            else noise.integers(0, 2**16, self.count).astype(f"u{int(kind[1:]) // 8}")
            for kind in code.kinds
        ]
        self.ready: dict[int, Mask] = {0: None}  # block → threads that come to it next
        self.waiting: dict[int, Mask] = {}  # the same, behind a barrier
        self.asked: list[tuple[Instruction, Mask]] = []  # the barriers
        self.ended = np.zeros(self.count, bool)
        self.copies: list[list[np.ndarray]] = []  # under way: threads, their groups, and what to copy
        self.groups = np.zeros(self.count, np.int64)  # committed by each thread

    def run(self) -> None:
        """Go on until all threads wait or have ended; those who are behind go first, so that others can be joined."""
        while self.ready:
            at = min(self.ready)
            mask = self.ready.pop(at)
            block = self.code.blocks[at]
            block.run(self, self.R, mask)
            end = block.end
            if end is None:
                self._go(self.ready, at + 1, mask)
                continue
            guard = None
            if end.guard:
                guard = self.register(end.guard.lstrip("!"))
                guard = ~guard if end.guard[0] == "!" else guard
            first = end.name.split(".")[0]
            if first in ("bar", "barrier"):
                assert guard is None, end
                self.asked.append((end, mask))
                self._go(self.waiting, at + 1, mask)
                continue
            goes = mask if guard is None else self.both(guard, mask)
            if first == "bra":
                self._go(self.ready, self.code.starts[str(end.operands[0])], goes)
            else:
                self.ended |= True if goes is None else goes
                mask = ~self.ended if mask is None else mask
            if guard is not None:
                self._go(self.ready, at + 1, self.both(~guard, mask))

    def _go(self, places: dict[int, Mask], at: int, mask: Mask) -> None:
        if mask is not None:
            if not mask.any():
                return
            mask = mask | places[at] if places.get(at) is not None else mask
            mask = None if mask.all() else mask
        places[at] = mask

    def register(self, name: object) -> np.ndarray:
        return self.R[self.code.numbers[str(name)]]

    # What blocks call

    def both(self, guard: np.ndarray, mask: Mask) -> Mask:
        guard = guard if mask is None else guard & mask
        return None if guard.all() else guard

    def all(self, value: Any) -> np.ndarray:
        value = np.asarray(value)
        return value if value.shape == (self.count,) else np.repeat(value, self.count)

    def put(self, R: list[np.ndarray], to: int, value: Any, stored: str, mask: Mask) -> None:
        value = self.all(value).view(stored)
        R[to] = value if mask is None else np.where(mask, value, R[to])

    def _active(self, mask: Mask) -> np.ndarray:
        return np.arange(self.count) if mask is None else np.flatnonzero(mask)

    def load(self, space: str, addresses: np.ndarray, count: int, kind: str, mask: Mask) -> np.ndarray:
        active = self._active(mask)
        found = np.zeros((count, self.count), kind)
        if len(active):
            size = count * np.dtype(kind).itemsize
            memory, places = self._places(space, addresses, size, active)
            if space == "shared":
                self.shared.reads(places, size, self.warp[active])
            found[:, active] = memory.read(places, count, kind)
        return found

    def store(self, space: str, addresses: np.ndarray, values: list[np.ndarray], mask: Mask) -> None:
        active = self._active(mask)
        if len(active):
            size = len(values) * values[0].dtype.itemsize
            memory, places = self._places(space, addresses, size, active)
            data = np.array([v[active] for v in values])
            if space == "shared":
                self.shared.write_from(places, data, self.warp[active])
            else:
                memory.write(places, data)

    def reduce(
        self, space: str, addresses: np.ndarray, values: list[np.ndarray], how: str, mask: Mask
    ) -> None:
        active = self._active(mask)
        if len(active):
            size = values[0].dtype.itemsize
            memory, places = self._places(space, addresses, size * len(values), active)
            for k, value in enumerate(values):
                COMBINED[how].at(memory.bytes.view(value.dtype), places // size + k, value[active])

    def _places(
        self, space: str, addresses: np.ndarray, size: int, active: np.ndarray
    ) -> tuple[Any, np.ndarray]:
        if space == "shared":
            return self.shared, self.shared.own(addresses[active], self.program[active], size)
        return self.memory, self.memory.places(addresses[active], size)

    def send(self, to: np.ndarray, start: np.ndarray, size: int, taken: np.ndarray, mask: Mask) -> None:
        """``cp.async``. The copy is made when it is waited for, which is as late as it may come."""
        active = self._active(mask)
        if len(active):
            _, places = self._places("shared", to, size, active)
            reading = taken[active] > 0
            assert np.isin(taken[active], (0, size)).all(), "a part of a copy"
            sources = np.zeros(len(active), np.int64)
            sources[reading] = self.memory.places(start[active][reading], size)
            self.shared.sends(places, size, self.warp[active])
            sizes = np.full(len(active), size)
            self.copies.append([active, self.groups[active], places, sources, reading, sizes])

    def commit(self, mask: Mask) -> None:
        self.groups[self._active(mask)] += 1

    def wait(self, left: int, mask: Mask) -> None:
        """All but the last ``left`` groups of a thread have arrived; −1 for those too that are not committed yet."""
        waits = np.zeros(self.count, bool)
        waits[self._active(mask)] = True
        for copy in self.copies:
            active, groups, places, sources, reading, sizes = copy
            done = waits[active] & (groups < self.groups[active] - left)
            if done.any():
                size = int(sizes[0])
                data = self.memory.read(np.where(reading, sources, 0)[done], size, "u1")
                self.shared.arrives(places[done], size, self.warp[active][done])
                self.shared.write(places[done], np.where(reading[done], data, 0).astype(np.uint8))
                copy[:] = [part[~done] for part in copy]
        self.copies = [copy for copy in self.copies if len(copy[0])]

    def _lanes(self, value: np.ndarray) -> np.ndarray:
        return value.reshape(-1, 32)

    def shuffle(
        self, a: np.ndarray, by: np.ndarray, limits: np.ndarray, how: str
    ) -> tuple[np.ndarray, np.ndarray]:
        found, inside = warp.shuffled(self._lanes(a), self._lanes(by), self._lanes(limits), how)
        return found.ravel(), inside.ravel()

    def _whole(self, mask: Mask) -> np.ndarray:
        active = np.ones(self.count, bool) if mask is None else mask
        return self._lanes(active)

    def vote(self, value: np.ndarray, how: str, mask: Mask) -> np.ndarray:
        return warp.voted(self._lanes(value), self._whole(mask), how).ravel()

    def redux(self, value: np.ndarray, how: str, mask: Mask) -> np.ndarray:
        return warp.reduced(self._lanes(value), self._whole(mask), how).ravel()

    def multiply(self, shape: str, kind: str, *operands: list[np.ndarray]) -> list[np.ndarray]:
        A, B, C = ([self._lanes(word) for word in words] for words in operands)
        return [word.ravel() for word in warp.product(shape, kind, A, B, C)]

    def _rows(
        self, addresses: np.ndarray, count: int, mask: Mask
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Places of the rows of matrices, whose addresses are in the first lanes; the warps that take part."""
        active = self._whole(mask)
        assert (active.all(axis=1) == active.any(axis=1)).all(), "a part of a warp"
        warps = np.flatnonzero(active.any(axis=1))
        lanes = (32 * warps[:, None] + np.arange(8 * count)).ravel()
        places = self.shared.own(addresses[lanes], self.program[lanes], 16)
        self.shared.matrices(places)
        return warps, lanes, places

    def load_matrices(
        self, addresses: np.ndarray, count: int, transposed: bool, mask: Mask
    ) -> list[np.ndarray]:
        warps, lanes, places = self._rows(addresses, count, mask)
        self.shared.reads(places, 16, self.warp[lanes])
        rows = self.shared.read(places, 8, "u2").T.reshape(len(warps), count, 8, 8)
        found = []
        for word in warp.loaded(rows, transposed):
            whole = np.zeros((self.count // 32, 32), np.uint32)
            whole[warps] = word
            found.append(whole.ravel())
        return found

    def store_matrices(
        self, addresses: np.ndarray, words: list[np.ndarray], transposed: bool, mask: Mask
    ) -> None:
        warps, lanes, places = self._rows(addresses, len(words), mask)
        rows = warp.stored([self._lanes(word)[warps] for word in words], transposed)
        self.shared.write_from(places, np.ascontiguousarray(rows.reshape(-1, 8).T), self.warp[lanes])


def run_programs(
    code: Translation,
    parameters: list[Any],
    memory: Global,
    shared_bytes: int,
    warps: int,
    grid: tuple[int, int, int],
    programs: np.ndarray,
    apart: bool,
) -> None:
    """Run some programs of a grid, by number. ``apart``: one warp after another, each up to the barrier."""
    shared = Shared(len(programs), shared_bytes)
    bundles = []
    for some in [[w] for w in range(warps)] if apart else [list(range(warps))]:
        bundles.append(Threads(code, parameters, memory, shared, places_of(programs, some, warps, grid)))
    while any(bundle.ready for bundle in bundles):
        for bundle in bundles:
            bundle.run()
        _meet(bundles, shared)
    assert all(bundle.ended.all() for bundle in bundles)
    assert not any(bundle.copies for bundle in bundles), "a kernel ends while copies are under way"


def places_of(
    programs: np.ndarray, warps: list[int], of: int, grid: tuple[int, int, int]
) -> dict[str, np.ndarray]:
    """Special registers of some warps, ``of`` so many, of some programs; "program" counts those that run together."""
    lanes = (np.array(warps)[:, None] * 32 + np.arange(32)).ravel()
    program = np.repeat(np.arange(len(programs)), len(lanes))
    number = programs[program]
    thread = np.tile(lanes, len(programs))
    numbers = {
        "%laneid": thread % 32, "%tid.x": thread, "%ntid.x": 32 * of,
        "%ctaid.x": number % grid[0], "%ctaid.y": number // grid[0] % grid[1],
        "%ctaid.z": number // (grid[0] * grid[1]),
        "%tid.y": 0, "%tid.z": 0, "%ntid.y": 1, "%ntid.z": 1,
        "%nctaid.x": grid[0], "%nctaid.y": grid[1], "%nctaid.z": grid[2],
    }  # fmt: skip
    special = {name: np.full(len(thread), value, np.uint32) for name, value in numbers.items()}
    return special | {"program": program}


def _meet(bundles: list[Threads], shared: Shared) -> None:
    """All threads wait at a barrier or have ended, so those that wait go on."""
    met = np.ones(len(shared.bytes) // shared.size, bool)  # what `barrier.red.and` finds, for each program
    for bundle in bundles:
        for end, mask in bundle.asked:
            parts = end.name.split(".")
            assert str(end.operands[1 if "red" in parts else 0]) == "0", f"{end}: only barrier 0"
            active = bundle.all(True) if mask is None else mask
            if "red" in parts:
                assert "and" in parts
                np.logical_and.at(met, bundle.program[active], bundle.register(end.operands[2])[active])
            shared.barrier(np.unique(bundle.program[active]))
    for bundle in bundles:
        for end, mask in bundle.asked:
            if "red" in end.name.split("."):
                bundle.put(
                    bundle.R, bundle.code.numbers[str(end.operands[0])], met[bundle.program], "?", mask
                )
        bundle.asked = []
        bundle.ready, bundle.waiting = bundle.waiting, {}
