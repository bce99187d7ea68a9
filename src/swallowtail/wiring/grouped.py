"""Rounds of small groups: rotations chosen from data, confined so that a kernel loads a coordinate once per round."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from swallowtail import checks
from swallowtail.errors import ArgumentError
from swallowtail.wiring.base import Wiring
from swallowtail.wiring.pairs import Pairs, pairs_array, within


class Group(NamedTuple):
    """The coordinates of one group, and the rotations inside it."""

    coordinates: np.ndarray  # shape: (m,), int64
    pairs: np.ndarray  # shape: (k, 2), int64: coordinates of the vector, in the order of the product


class Grouped(Pairs):
    """Pairs in rounds: in a round the coordinates form disjoint groups, and rotations stay inside their group.

    A kernel loads the coordinates of a group once per round, however many rotations the group holds. Free pairs,
    the layers of a butterfly (`from_wiring`) and fixed blocks of coordinates are special cases.

    The layers of a round follow each other, each rotation in the earliest one its order allows. Angles are numbered
    layer by layer, as in every wiring; `from_listing` returns the order for angles listed group by group.

    Args:
        n: dimension of the space.
        rounds: Q₁ first. A round is a sequence of groups ``(coordinates, pairs)``; the pairs (i, j) of a group are
            coordinates of the vector, in the order of the product. Coordinates that no group names stay still.

    >>> Grouped(6, [[([0, 1, 2], [(0, 1), (1, 2)]), ([3, 5], [(3, 5)])], [([2, 3], [(2, 3)])]])
    Grouped(n=6): 2 rounds of groups up to 3, 3 layers, 4 rotations
    """

    round_layers: np.ndarray  # shape: (R + 1,): round r has layers round_layers[r] to round_layers[r + 1] − 1
    groups: tuple[tuple[np.ndarray, ...], ...]  # the coordinates of every group, round by round

    def __init__(self, n: int, rounds: Iterable[Any]) -> None:
        self.n = checks.integer("n", n, at_least=1)
        self._pack_rounds([_checked_round(self.n, r, groups) for r, groups in enumerate(rounds)])

    def _pack_rounds(self, rounds: list[list[Group]]) -> np.ndarray:
        """Pack each round into layers; returns the order in which to take the angles of the listing."""
        pairs, sizes, orders, layers = [np.zeros((0, 2), np.int64)], list[int](), [np.arange(0)], [0]
        for groups in rounds:
            listed = np.concatenate([np.zeros((0, 2), np.int64), *(group.pairs for group in groups)])
            packed, order = Pairs.from_sequence(self.n, listed)
            orders.append(order + sum(map(len, pairs)))
            pairs.append(packed.pairs)
            sizes += np.diff(packed.offsets).tolist()
            layers.append(len(sizes))
        self._set(np.concatenate(pairs), sizes)
        self.groups = tuple(tuple(group.coordinates for group in groups) for groups in rounds)
        self.round_layers = np.array(layers, np.int64)
        return np.concatenate(orders)

    @staticmethod
    def from_listing(n: int, rounds: Iterable[Any]) -> tuple[Grouped, np.ndarray]:
        """As the constructor, for rotations whose angles are listed round by round, group by group.

        Returns:
            The wiring, and the order in which to take the listing's angles for it.
        """
        wiring = Grouped.__new__(Grouped)
        wiring.n = checks.integer("n", n, at_least=1)
        return wiring, wiring._pack_rounds([_checked_round(n, r, groups) for r, groups in enumerate(rounds)])

    @staticmethod
    def from_layers(
        pairs: Pairs, groups: Sequence[Sequence[Any]], round_layers: Sequence[int] | np.ndarray
    ) -> Grouped:
        """Keep the layers of ``pairs``, and with them the order of the angles; say which layers form a round.

        Args:
            pairs: the layers.
            groups: for each of the R rounds the coordinates of its groups.
            round_layers: R + 1 numbers rising from 0 to the number of layers; round r has the layers from its
                number up to the next.
        """
        starts = np.asarray(round_layers, np.int64)
        if (
            len(starts) != len(groups) + 1
            or starts[0]
            or starts[-1] != pairs.n_layers
            or (np.diff(starts) < 0).any()
        ):
            expected = f"{len(groups) + 1} numbers that rise from 0 to {pairs.n_layers}"
            raise ArgumentError("round_layers", expected, starts.tolist())
        rounds = list[list[Group]]()
        for r, (start, stop) in enumerate(pairwise(pairs.offsets[starts])):
            without_pairs = _checked_round(pairs.n, r, [(coordinates, ()) for coordinates in groups[r]])
            _sorted_into_groups(r, without_pairs, pairs.pairs[start:stop])  # for its check
            rounds.append(without_pairs)
        return Grouped.from_valid(
            pairs, tuple(tuple(group.coordinates for group in found) for found in rounds), starts
        )

    @staticmethod
    def from_valid(
        pairs: Pairs, groups: tuple[tuple[np.ndarray, ...], ...], round_layers: np.ndarray
    ) -> Grouped:
        """From parts known to be valid."""
        wiring = Grouped.__new__(Grouped)
        wiring.n, wiring.groups, wiring.round_layers = pairs.n, groups, round_layers
        wiring._set(pairs.pairs, np.diff(pairs.offsets).tolist())
        return wiring

    @staticmethod
    def from_wiring(wiring: Wiring, size: int = 16) -> Grouped:
        """Any wiring in rounds of groups of at most ``size`` coordinates, with the same layers and angles.

        A round takes one layer after another for as long as the coordinates that meet in it, directly or through
        others, are at most ``size``. A butterfly is cut into rounds of lg ``size`` layers.

        >>> from swallowtail import Butterfly
        >>> Grouped.from_wiring(Butterfly(64), size=8)
        Grouped(n=64): 2 rounds of groups up to 8, 6 layers, 192 rotations
        """
        size = checks.integer("size", size, at_least=2)
        layers = list(wiring.layers())
        groups, starts, first = list[tuple[np.ndarray, ...]](), [0], 0
        while first < len(layers):
            last, found = first, _components(wiring.n, layers[first : first + 1])
            while last + 1 < len(layers):
                more = _components(wiring.n, layers[first : last + 2])
                if max(map(len, more), default=0) > size:
                    break
                last, found = last + 1, more
            groups.append(tuple(found))
            first = last + 1
            starts.append(first)
        pairs = np.concatenate([np.zeros((0, 2), np.int64), *layers])
        flat = Pairs.from_flat(wiring.n, pairs, wiring.offsets)
        return Grouped.from_valid(flat, tuple(groups), np.array(starts, np.int64))

    @property
    def n_rounds(self) -> int:
        """How many rounds there are, R."""
        return len(self.groups)

    @property
    def size(self) -> int:
        """How many coordinates the largest group has."""
        return max((len(group) for groups in self.groups for group in groups), default=0)

    @property
    def rounds(self) -> list[list[Group]]:
        """The groups of every round, Q₁ first, each with its pairs in the order of the layers."""
        spans = pairwise(self.offsets[self.round_layers])
        return [
            _sorted_into_groups(r, [Group(c, np.zeros((0, 2), np.int64)) for c in groups], self.pairs[a:b])
            for r, (groups, (a, b)) in enumerate(zip(self.groups, spans, strict=True))
        ]

    @property
    def T(self) -> Grouped:
        return Grouped.from_valid(super().T, self.groups[::-1], self.n_layers - self.round_layers[::-1])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Grouped) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[Any, ...]:
        groups = tuple(tuple(group.tobytes() for group in groups) for groups in self.groups)
        return self.n, self.pairs.tobytes(), self.offsets.tobytes(), self.round_layers.tobytes(), groups

    def __repr__(self) -> str:
        return (
            f"Grouped(n={self.n}): {self.n_rounds} rounds of groups up to {self.size}, "
            f"{self.n_layers} layers, {self.n_rotations} rotations"
        )


def _checked_round(n: int, index: int, groups: Any) -> list[Group]:
    """One round as records of arrays, checked."""
    listed = list[Group]()
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


def _sorted_into_groups(index: int, groups: list[Group], pairs: np.ndarray) -> list[Group]:
    """Give every group its pairs, in the order they come."""
    home = _Owners(groups).of(pairs)
    _inside(f"round {index}", pairs, (home == home[:, :1]) & (home >= 0))
    return [Group(group.coordinates, pairs[home[:, 0] == q]) for q, group in enumerate(groups)]


def _components(n: int, layers: list[np.ndarray]) -> list[np.ndarray]:
    """The sets of two or more coordinates that meet in these layers, directly or through others."""
    pairs = np.concatenate(layers)
    graph = coo_array((np.ones(len(pairs), np.bool_), (pairs[:, 0], pairs[:, 1])), shape=(n, n))
    _, label = connected_components(graph, directed=False)
    order = np.argsort(label, kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(label[order])) + 1)
    return [part.astype(np.int64) for part in parts if len(part) > 1]
