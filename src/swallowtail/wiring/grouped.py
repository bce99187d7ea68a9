"""Rounds of small groups: rotations chosen from data, confined so that a kernel loads a coordinate once per round."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from swallowtail import checks
from swallowtail.errors import ArgumentError
from swallowtail.wiring.base import Wiring, as_text, hash64
from swallowtail.wiring.groups import (
    Group,
    butterfly_layers,
    checked_round,
    components,
    decode,
    encode,
    random_layers,
    sorted_into_groups,
)
from swallowtail.wiring.pairs import Pairs, read_only


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
        self._pack_rounds([checked_round(self.n, r, groups) for r, groups in enumerate(rounds)])

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
        groups_of_rounds = tuple(tuple(group.coordinates for group in groups) for groups in rounds)
        self._set_rounds(np.concatenate(pairs), sizes, groups_of_rounds, np.array(layers, np.int64))
        return np.concatenate(orders)

    def _set_rounds(
        self,
        pairs: np.ndarray,
        sizes: Sequence[int],
        groups: tuple[tuple[np.ndarray, ...], ...],
        round_layers: np.ndarray,
    ) -> None:
        self._set(pairs, sizes)
        self.groups = tuple(tuple(map(read_only, found)) for found in groups)
        self.round_layers = read_only(round_layers)
        self._code, table = encode(self.n, self.pairs, self.offsets, groups, round_layers)
        self.encoded = as_text(self._code, table)

    @staticmethod
    def from_listing(n: int, rounds: Iterable[Any]) -> tuple[Grouped, np.ndarray]:
        """As the constructor, for rotations whose angles are listed round by round, group by group.

        Returns:
            The wiring, and the order in which to take the listing's angles for it.
        """
        wiring = Grouped.__new__(Grouped)
        wiring.n = checks.integer("n", n, at_least=1)
        return wiring, wiring._pack_rounds([checked_round(n, r, groups) for r, groups in enumerate(rounds)])

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
            or (starts[1:] < starts[:-1]).any()
        ):
            expected = f"{len(groups) + 1} numbers that rise from 0 to {pairs.n_layers}"
            raise ArgumentError("round_layers", expected, starts.tolist())
        rounds = list[list[Group]]()
        for r, (start, stop) in enumerate(pairwise(pairs.offsets[starts])):
            without_pairs = checked_round(pairs.n, r, [(coordinates, ()) for coordinates in groups[r]])
            sorted_into_groups(r, without_pairs, pairs.pairs[start:stop])  # for its check
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
        wiring.n = pairs.n
        wiring._set_rounds(pairs.indices, np.diff(pairs.offsets).tolist(), groups, round_layers)
        return wiring

    @staticmethod
    def from_encoded(table: np.ndarray, code: Sequence[int]) -> Grouped:
        """Undo `groups.encode`, for a table known to be valid."""
        n, offsets, groups, round_layers = decode(table, code)
        return Grouped.from_valid(Pairs.from_flat(n, table[: offsets[-1]], offsets), groups, round_layers)

    @staticmethod
    def fixed(n: int, size: int = 128, layers: int = 8, *, pairs: Any = "random", seed: int = 0) -> Grouped:
        """Blocks of ``size`` neighbouring coordinates that stay the same for all layers: one round.

        Quantisers use it, because they round blocks of neighbouring weights together. If ``size`` does not divide n,
        the last block is smaller.

        Args:
            n: dimension of the space.
            size: coordinates per block.
            layers: how many layers of disjoint pairs each block gets.
            pairs: "random": each layer pairs all coordinates of a block at random. "butterfly": strides size/2 … 1,
                over and over; with lg ``size`` layers a block is a butterfly. Or the layers themselves, as in
                `Pairs`, with both coordinates of a pair in the same block; then ``layers`` does not count.
            seed: for "random".

        >>> Grouped.fixed(300, size=128)
        Grouped(n=300): 1 round of groups up to 128, 8 layers, 1200 rotations
        """
        n, size = checks.integer("n", n, at_least=1), checks.integer("size", size, at_least=1)
        if size > n:
            raise ArgumentError("size", f"at most n = {n}", size, f"try `size={n}`")
        blocks = np.split(np.arange(n), range(size, n, size))
        if isinstance(pairs, str):
            layers = checks.integer("layers", layers, at_least=0)
            if checks.choice("pairs", pairs, ("random", "butterfly")) == "random":
                pairs = random_layers(blocks, layers, np.random.default_rng(checks.seed("seed", seed)))
            else:
                pairs = butterfly_layers(n, size, layers)
        listed = Pairs(n, pairs)
        return Grouped.from_layers(listed, [blocks], [0, listed.n_layers])

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
            last, found = first, components(wiring.n, layers[first : first + 1])
            while last + 1 < len(layers):
                more = components(wiring.n, layers[first : last + 2])
                if max(map(len, more), default=0) > size:
                    break
                last, found = last + 1, more
            groups.append(tuple(found))
            first = last + 1
            starts.append(first)
        flat = Pairs.from_flat(wiring.n, wiring.flat_pairs(), wiring.offsets)
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
            sorted_into_groups(r, [Group(c, np.zeros((0, 2), np.int64)) for c in groups], self.pairs[a:b])
            for r, (groups, (a, b)) in enumerate(zip(self.groups, spans, strict=True))
        ]

    @property
    def T(self) -> Grouped:
        return Grouped.from_valid(super().T, self.groups[::-1], self.n_layers - self.round_layers[::-1])

    @cached_property
    def fingerprint(self) -> int:
        numbers = (self.pairs, *(group for groups in self.groups for group in groups))
        sizes = [*self._code, *(len(group) for groups in self.groups for group in groups)]
        return hash64(b"Grouped", *(np.asarray(part).astype("<i8").tobytes() for part in (sizes, *numbers)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Grouped) and self._key() == other._key()

    __hash__ = Pairs.__hash__

    def _key(self) -> tuple[Any, ...]:
        groups = tuple(tuple(group.tobytes() for group in groups) for groups in self.groups)
        return self.n, self.pairs.tobytes(), self.offsets.tobytes(), self.round_layers.tobytes(), groups

    def __repr__(self) -> str:
        return (
            f"Grouped(n={self.n}): {self.n_rounds} round{'s' * (self.n_rounds != 1)} of groups up to {self.size}, "
            f"{self.n_layers} layers, {self.n_rotations} rotations"
        )
