"""Global and shared memory, with the checks that compute-sanitizer makes on a GPU."""

from __future__ import annotations

import numpy as np
import torch

SHARED_START = 1024  # of a kernel's shared memory: what lies below is CUDA's own
GLOBAL_START = 1 << 40
WORD = 2  # bytes that are told apart when warps use shared memory at once
APART = 4096  # bytes between two tensors that nobody may touch


class MemoryFault(AssertionError):
    """A kernel touched what is not its own, or what another warp was using."""


class Bytes:
    """Memory that threads read and write, by addresses that are arrays."""

    def __init__(self, size: int, start: int, what: str) -> None:
        self.start, self.what = start, what
        self.bytes = np.full(-(-size // 16) * 16, 0xFF, np.uint8)  # NaN, and no sensible index
        self.usable = np.zeros(len(self.bytes), bool)

    def places(self, addresses: np.ndarray, size: int) -> np.ndarray:
        """Indices of the first bytes, if all ``size`` bytes from there may be used."""
        places = addresses.astype(np.int64) - self.start
        if (addresses & np.asarray(size - 1, addresses.dtype)).any():
            raise MemoryFault(
                f"{self.what}: an access of {size} bytes to {_some(places, places % size != 0)}"
            )
        inside = (places >= 0) & (places + size <= len(self.bytes))
        if not inside.all() or not self.usable[places[:, None] + np.arange(0, size, min(size, 4))].all():
            raise MemoryFault(
                f"{self.what}: {size} bytes at {_some(places, ~self._allowed(places, size))} are nobody's"
            )
        return places

    def _allowed(self, places: np.ndarray, size: int) -> np.ndarray:
        inside = np.clip(places, 0, len(self.bytes) - size)
        return (inside == places) & self.usable[inside]

    def read(self, places: np.ndarray, count: int, kind: str) -> np.ndarray:
        """``count`` numbers from each place, (count, places)."""
        size = np.dtype(kind).itemsize
        return self.bytes.view(kind)[(places // size)[None] + np.arange(count)[:, None]]

    def write(self, places: np.ndarray, values: np.ndarray) -> None:
        """Values (count, places)."""
        size = values.dtype.itemsize
        self.bytes.view(values.dtype)[(places // size)[None] + np.arange(len(values))[:, None]] = values


class Global(Bytes):
    """The memory of some tensors, each with a distance to the next. Tensors that share storage share it here."""

    def __init__(self, tensors: list[torch.Tensor]) -> None:
        self.storages = {t.untyped_storage().data_ptr(): t.untyped_storage() for t in tensors}
        self.begin, size = {}, APART
        for pointer, storage in self.storages.items():
            size += (pointer - size) % 256  # as aligned as it is
            self.begin[pointer] = size
            size += storage.nbytes() + APART
        super().__init__(size, GLOBAL_START, "global memory")
        for pointer, storage in self.storages.items():
            self._part(pointer)[:] = _array(storage)
        for tensor in tensors:
            at = self.address(tensor) - self.start
            span = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True)) + 1
            self.usable[at : at + (span * tensor.element_size() if tensor.numel() else 0)] = True

    def address(self, tensor: torch.Tensor) -> int:
        pointer = tensor.untyped_storage().data_ptr()
        return self.start + self.begin[pointer] + tensor.storage_offset() * tensor.element_size()

    def _part(self, pointer: int) -> np.ndarray:
        return self.bytes[self.begin[pointer] : self.begin[pointer] + self.storages[pointer].nbytes()]

    def copy_back(self) -> None:
        for pointer, storage in self.storages.items():
            _array(storage)[:] = self._part(pointer)


class Shared(Bytes):
    """Shared memory of many programs, one behind the other, and who used which word since the last barrier."""

    NOBODY, SEVERAL = -1, -2

    def __init__(self, programs: int, size: int, start: int = SHARED_START) -> None:
        self.size = max(16, -(-size // 16) * 16)
        super().__init__(programs * self.size, start, "shared memory")
        self.usable[:] = True
        words = len(self.bytes) // WORD
        self.writer = np.full(words, self.NOBODY, np.int32)
        self.reader = np.full(words, self.NOBODY, np.int32)
        self.arriving = np.zeros(words, bool)  # copies to these words are under way
        self.conflicts = 1  # the most rows of a matrix of eight that lay in the same banks

    def own(self, addresses: np.ndarray, programs: np.ndarray, size: int) -> np.ndarray:
        """Places of addresses that each program counts from its own start."""
        places = self.places(addresses, size)
        if (places + size > self.size).any():
            raise MemoryFault(
                f"shared memory: {size} bytes at {_some(places, places + size > self.size)} are nobody's"
            )
        return places + programs * self.size

    def reads(self, places: np.ndarray, size: int, warps: np.ndarray) -> None:
        words, warps = _words(places, size, warps)
        self._compare(words, warps, "reads what another writes")
        before = self.reader[words]
        self.reader[words] = np.where((before == self.NOBODY) | (before == warps), warps, self.SEVERAL)
        other = self.reader[words]
        self.reader[words[(other != warps)]] = self.SEVERAL

    def write_from(self, places: np.ndarray, values: np.ndarray, warps: np.ndarray) -> None:
        """Values (count, places) by these warps. Several may write the same number to a word, whoever is first."""
        size = values.dtype.itemsize * len(values)
        values = values.view(f"u{values.dtype.itemsize}")
        new = (self.read(places, len(values), values.dtype.str) != values).any(axis=0)
        self._claim(places[new], size, warps[new])
        self.write(places, values)
        # Threads of one warp may hold the same sum, rounded in another order: any of them may be the one that stays.
        lost = (self.read(places, len(values), values.dtype.str) != values).any(axis=0)
        self._compare(*_words(places[lost], size, warps[lost]), "writes what another writes")

    def _claim(self, places: np.ndarray, size: int, warps: np.ndarray) -> None:
        words, warps = _words(places, size, warps)
        self._compare(words, warps, "writes what another writes")
        self._compare(words, warps, "writes what another reads", self.reader)
        self.writer[words] = warps

    def sends(self, places: np.ndarray, size: int, warps: np.ndarray) -> None:
        """A copy to these places begins: nobody may look at them before it has ended."""
        self._claim(places, size, warps)
        self.arriving[_words(places, size, warps)[0]] = True

    def arrives(self, places: np.ndarray, size: int, warps: np.ndarray) -> None:
        words, warps = _words(places, size, warps)
        self.arriving[words] = False
        self.writer[words] = warps

    def _compare(
        self, words: np.ndarray, warps: np.ndarray, what: str, used: np.ndarray | None = None
    ) -> None:
        others = (self.writer if used is None else used)[words]
        if self.arriving[words].any():
            raise MemoryFault("shared memory: a word is used while a copy to it is under way")
        wrong = (others != self.NOBODY) & (others != warps)
        if wrong.any():
            at = np.flatnonzero(wrong)[0]
            raise MemoryFault(
                f"shared memory: warp {warps[at]} {what}, {others[at]}, with no barrier between them, "
                f"at byte {words[at] * WORD % self.size}"
            )

    def matrices(self, places: np.ndarray) -> None:
        """Eight rows of 16 bytes at a time are read or written at once if they lie in different banks."""
        banks = places.reshape(-1, 8, 1) // 16 % 8 == np.arange(8)
        self.conflicts = max(self.conflicts, int(banks.sum(axis=1).max()))

    def barrier(self, programs: np.ndarray) -> None:
        for use in (self.writer, self.reader):
            use.reshape(-1, self.size // WORD)[programs] = self.NOBODY


def _words(places: np.ndarray, size: int, warps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    words = (places // WORD)[:, None] + np.arange(max(1, size // WORD))
    return words.ravel(), np.repeat(warps, words.shape[1])


def _array(storage: torch.UntypedStorage) -> np.ndarray:
    found: np.ndarray = torch.empty(0, dtype=torch.uint8).set_(storage).numpy()
    return found


def _some(places: np.ndarray, which: np.ndarray) -> str:
    return f"{places[which][:4].tolist()}"
