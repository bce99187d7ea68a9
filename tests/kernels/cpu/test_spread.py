"""The search for banks: it exchanges within octets, and never makes groups worse."""

from __future__ import annotations

import numpy as np

from swallowtail.kernels.cpu.spread import swap


def test_members_of_groups_are_spread():
    rng = np.random.default_rng(0)
    of = np.arange(64).reshape(8, 8)
    bank = np.tile(np.arange(8), 8)
    groups = np.array([8 * np.arange(8), 8 * np.arange(8) + 1, rng.permutation(64)[:16][:8]])  # one bank each
    member, q = groups.ravel(), np.repeat(np.arange(3), 8)
    own, ends = q[np.argsort(member, kind="stable")], np.cumsum(np.bincount(member, minlength=64))

    def worst() -> int:
        return sum(int(np.maximum(0, np.bincount(bank[group], minlength=8) - 2).sum()) for group in groups)

    before = worst()
    swap(of, bank, own, ends, np.zeros((3, 8), np.int64), 20)
    assert (np.sort(bank[of], axis=1) == np.arange(8)).all()
    assert worst() == 0 < before
