"""The groups of one round: their records, and the checks that they are groups."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy

from swallowtail.errors import ArgumentError
from swallowtail.wiring.pairs import pairs_array, within


class Group(NamedTuple):
    """The coordinates of one group, and the rotations inside it."""

    coordinates: np.ndarray  # shape: (m,), int64
    pairs: np.ndarray  # shape: (k, 2), int64: coordinates of the vector, in the order of the product


def checked_round(n: int, index: int, groups: Any) -> list[Group]:
    """One round as records of arrays, checked."""
    listed = list[Group]()
    if not isinstance(groups, Iterable):
        hint = "try [[([0, 1], [(0, 1)])]], one round with one group"
        raise ArgumentError(f"round {index}", "a list of groups (coordinates, pairs)", repr(groups), hint)
    for q, group in enumerate(groups):
        name = f"round {index}, group {q}"
        try:
            coordinates, pairs = group
        except (TypeError, ValueError) as error:
            got = repr(group) if len(repr(group)) < 60 else type(group).__name__
            raise ArgumentError(name, "(coordinates, pairs)", got, "try ([0, 1], [(0, 1)])") from error
        listed.append(Group(_coordinates(n, name, coordinates), pairs_array(n, name, pairs)))
    owners = _Owners(listed)
    if owners.shared is not None:
        coordinate, one, other = owners.shared
        got, hint = (
            f"coordinate {coordinate} in groups {one} and {other}",
            "try a round of its own for one of them",
        )
        raise ArgumentError(f"round {index}", "disjoint groups", got, hint)
    for q, group in enumerate(listed):
        _inside(f"round {index}, group {q}", group.pairs, owners.of(group.pairs) == q)
    return listed


class _Owners:
    """Which group of a round has a coordinate. Takes memory for the coordinates named, not for all n: files name n."""

    def __init__(self, groups: list[Group]) -> None:
        joined = np.concatenate([np.zeros(0, np.int64), *(group.coordinates for group in groups)])
        order = np.argsort(joined, kind="stable")
        self._coordinates = joined[order]
        self._group = np.repeat(np.arange(len(groups)), [len(group.coordinates) for group in groups])[order]

    @property
    def shared(self) -> tuple[int, int, int] | None:
        """A coordinate that two groups have, and those two; or None."""
        (twice,) = np.nonzero(self._coordinates[1:] == self._coordinates[:-1])
        if not len(twice):
            return None
        k = int(twice[0])
        return int(self._coordinates[k]), int(self._group[k]), int(self._group[k + 1])

    def of(self, coordinates: np.ndarray) -> np.ndarray:
        """The group of each coordinate, −1 for none; the same shape."""
        if not len(self._coordinates):
            return np.full(coordinates.shape, -1)
        place = np.searchsorted(self._coordinates, coordinates).clip(max=len(self._coordinates) - 1)
        return np.where(self._coordinates[place] == coordinates, self._group[place], -1)


def _coordinates(n: int, name: str, coordinates: Any) -> np.ndarray:
    array = np.array(list(coordinates) if isinstance(coordinates, (range, set, frozenset)) else coordinates)
    if array.size == 0:
        raise ArgumentError(name, "at least one coordinate", "none", "try leaving the group out")
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
        got = f"shape {array.shape} of {array.dtype}"
        raise ArgumentError(name, "a list of integer coordinates", got, "try ([0, 1], [(0, 1)])")
    within(n, name, array)
    values, counts = np.unique(array, return_counts=True)
    if counts.max() > 1:
        got = f"coordinate {values[counts.argmax()]} {counts.max()} times"
        raise ArgumentError(name, "each coordinate once", got, "try numpy.unique(coordinates)")
    return array.astype(np.int64)


def _inside(name: str, pairs: np.ndarray, inside: np.ndarray) -> None:
    """Check that every pair has two different coordinates, both of its group."""
    same = pairs[:, 0] == pairs[:, 1]
    if same.any():
        got = f"coordinate {pairs[same][0, 0]} with itself"
        raise ArgumentError(name, "pairs of different coordinates", got, "try leaving the pair out")
    if not inside.all():
        i, j = pairs[~inside.all(1)][0].tolist()
        hint = "try a group that has both coordinates"
        raise ArgumentError(name, "pairs inside the group", f"the pair ({i}, {j})", hint)


def sorted_into_groups(index: int, groups: list[Group], pairs: np.ndarray) -> list[Group]:
    """Give every group its pairs, in the order they come."""
    home = _Owners(groups).of(pairs)
    _inside(f"round {index}", pairs, (home == home[:, :1]) & (home >= 0))
    return [Group(group.coordinates, pairs[home[:, 0] == q]) for q, group in enumerate(groups)]


def components(n: int, layers: list[np.ndarray]) -> list[np.ndarray]:
    """The sets of two or more coordinates that meet in these layers, directly or through others."""
    pairs = np.concatenate(layers)
    graph = scipy.sparse.coo_array((np.ones(len(pairs), np.bool_), (pairs[:, 0], pairs[:, 1])), shape=(n, n))
    _, label = scipy.sparse.csgraph.connected_components(graph, directed=False)
    order = np.argsort(label, kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(label[order])) + 1)
    return [part.astype(np.int64) for part in parts if len(part) > 1]


def random_layers(
    blocks: Sequence[np.ndarray], n_layers: int, rng: np.random.Generator
) -> list[np.ndarray]:  # each of shape (m, 2)
    """Layers in which all coordinates of a block are paired at random; one stays alone if their number is odd."""
    return [
        np.concatenate([rng.permutation(block)[: len(block) // 2 * 2].reshape(-1, 2) for block in blocks])
        for _ in range(n_layers)
    ]


def butterfly_layers(n: int, size: int, n_layers: int) -> list[np.ndarray]:  # each of shape (m, 2)
    """Strides from the largest power of two below ``size`` down to 1, over and over, inside each block."""
    coordinates = np.arange(n)
    local = coordinates % size
    ends = np.minimum(coordinates - local + size, n)
    strides = [1 << e for e in reversed(range((size - 1).bit_length()))] or [1]
    layers = []
    for index in range(n_layers):
        p = strides[index % len(strides)]
        first = coordinates[(local & p == 0) & (coordinates + p < ends)]
        layers.append(np.stack([first, first + p], axis=1))
    return layers


def encode(
    n: int,
    pairs: np.ndarray,
    offsets: np.ndarray,
    groups: tuple[tuple[np.ndarray, ...], ...],
    round_layers: np.ndarray,
) -> tuple[list[int], np.ndarray]:
    """Rounds as integers and a table, for `as_text`.

    Args:
        n: dimension of the space.
        pairs: shape (K, 2).
        offsets: where each layer's angles begin.
        groups: the coordinates of every group, round by round.
        round_layers: shape (R + 1,).

    Returns:
        The code: −n, which tells it from one of `Pairs`, R, ``round_layers``, groups per round, offsets. And a table:
        the pairs, then a row (coordinate, number of its group) for each coordinate of each group.
    """
    members = [group for of_round in groups for group in of_round]
    numbers = np.repeat(np.arange(len(members)), [len(group) for group in members])
    rows = np.stack([np.concatenate([np.arange(0), *members]), numbers], axis=1)
    per_round = [len(of_round) for of_round in groups]
    code = [-n, len(groups), *round_layers.tolist(), *per_round, *offsets.tolist()]
    return code, np.concatenate([pairs, rows])


class Decoded(NamedTuple):
    """What `encode` was given, but for the pairs."""

    n: int
    offsets: np.ndarray
    groups: tuple[tuple[np.ndarray, ...], ...]
    round_layers: np.ndarray


def decode(table: np.ndarray, code: Sequence[int]) -> Decoded:
    """Undo `encode`."""
    n, n_rounds = -code[0], code[1]
    offsets = code[3 + 2 * n_rounds :]
    round_layers, per_round = code[2 : 3 + n_rounds], code[3 + n_rounds : 3 + 2 * n_rounds]
    coordinates, numbers = table[offsets[-1] :].T
    members = iter(np.split(coordinates, np.flatnonzero(np.diff(numbers)) + 1))
    groups = tuple(tuple(next(members) for _ in range(count)) for count in per_round)
    return Decoded(n, np.array(offsets), groups, np.array(round_layers))
