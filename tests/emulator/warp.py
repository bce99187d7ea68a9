"""What the 32 threads of a warp do together. Registers are arrays (warps, 32) of 32 bits."""

from __future__ import annotations

import numpy as np

LANES = np.arange(32)
ROW, COLUMN = LANES // 4, LANES % 4  # "groupID" and "threadID_in_group" in NVIDIA's pictures of the fragments
Words = list[np.ndarray]


def shuffled(a: np.ndarray, by: np.ndarray, limits: np.ndarray, how: str) -> tuple[np.ndarray, np.ndarray]:
    """``shfl.sync``: another lane's number; and whether that lane lies in the segment."""
    by, limits = np.broadcast_arrays(by.astype(np.int64), limits.astype(np.int64))
    fixed = (limits >> 8) & 31
    last = (LANES & fixed) | (limits & 31 & ~fixed)
    first = LANES & fixed
    if how == "up":
        source = LANES - by
        inside = source >= last
    else:
        source = {"down": LANES + by, "bfly": LANES ^ by, "idx": first | (by & 31 & ~fixed)}[how]
        inside = source <= last
    source = np.where(inside, source, LANES) & 31
    return np.take_along_axis(a, source, axis=1), inside


def voted(value: np.ndarray, active: np.ndarray, how: str) -> np.ndarray:
    """``vote.sync``: of all active lanes, for every lane."""
    if how == "ballot":
        found = ((value & active).astype(np.uint32) << LANES.astype(np.uint32)).sum(axis=1, dtype=np.uint32)
    elif how == "any":
        found = (value & active).any(axis=1)
    else:
        found = (value | ~active).all(axis=1)
    return np.repeat(found[:, None], 32, axis=1)


def reduced(value: np.ndarray, active: np.ndarray, how: str) -> np.ndarray:
    """``redux.sync``: the sum, minimum, … of all active lanes, for every lane."""
    limits = np.iinfo(value.dtype)
    start = {"add": 0, "or": 0, "xor": 0, "max": limits.min, "min": limits.max, "and": ~value.dtype.type(0)}[
        how
    ]
    function = {
        "add": np.add, "or": np.bitwise_or, "xor": np.bitwise_xor, "and": np.bitwise_and, "max": np.maximum,
        "min": np.minimum,
    }[how]  # fmt: skip
    found = function.reduce(np.where(active, value, value.dtype.type(start)), axis=1, dtype=value.dtype)
    return np.repeat(found[:, None], 32, axis=1)


def loaded(rows: np.ndarray, transposed: bool) -> Words:
    """``ldmatrix``: rows (warps, matrices, 8, 8) of 16 bits as each lane's two neighbours, one word per matrix."""
    rows = rows.swapaxes(2, 3) if transposed else rows
    pairs = np.ascontiguousarray(rows).view(np.uint32)  # (warps, matrices, 8, 4)
    return [pairs[:, k].reshape(-1, 32) for k in range(pairs.shape[1])]


def stored(words: Words, transposed: bool) -> np.ndarray:
    """``stmatrix``: the rows to be written, (warps, matrices, 8, 8) of 16 bits."""
    pairs = np.stack(words, axis=1).reshape(len(words[0]), len(words), 8, 4)
    rows = np.ascontiguousarray(pairs).view(np.uint16)
    return rows.swapaxes(2, 3) if transposed else rows


def product(shape: str, kind: str, A: Words, B: Words, C: Words) -> Words:
    """``mma.sync`` with float32 sums: A is 16 rows by k, B k rows by 8 columns, C and the result 16 by 8.

    Products and sums are in float64, rounded once: no tensor core sums in an order that is documented.
    """
    if kind == "tf32":
        assert shape == "m16n8k8"
        left, right = np.zeros((len(C[0]), 16, 8)), np.zeros((len(C[0]), 8, 8))
        for k, word in enumerate(A):
            left[:, ROW + 8 * (k % 2), COLUMN + 4 * (k // 2)] = _tf32(word)
        for k, word in enumerate(B):
            right[:, COLUMN + 4 * k, ROW] = _tf32(word)
    else:
        deep = 8 * len(B)
        assert shape == f"m16n8k{deep}"
        left, right = np.zeros((len(C[0]), 16, deep)), np.zeros((len(C[0]), deep, 8))
        for k, word in enumerate(A):
            for half, numbers in enumerate(_halves(word, kind)):
                left[:, ROW + 8 * (k % 2), 2 * COLUMN + half + 8 * (k // 2)] = numbers
        for k, word in enumerate(B):
            for half, numbers in enumerate(_halves(word, kind)):
                right[:, 2 * COLUMN + half + 8 * k, ROW] = numbers
    D = left @ right
    return [
        (D[:, ROW + 8 * (k // 2), 2 * COLUMN + k % 2] + word.view(np.float32))
        .astype(np.float32)
        .view(np.uint32)
        for k, word in enumerate(C)
    ]


def _tf32(word: np.ndarray) -> np.ndarray:
    """Tensor cores ignore the last 13 bits."""
    return (word & np.uint32(0xFFFFE000)).view(np.float32)


def _halves(word: np.ndarray, kind: str) -> Words:
    low, high = word.astype(np.uint16), (word >> np.uint32(16)).astype(np.uint16)
    if kind == "f16":
        return [low.view(np.float16), high.view(np.float16)]
    return [(half.astype(np.uint32) << np.uint32(16)).view(np.float32) for half in (low, high)]
