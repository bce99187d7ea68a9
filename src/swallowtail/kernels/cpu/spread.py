"""A search that spreads the members of groups over the banks of a GPU's shared memory (`kernels.gpu.half_plan`)."""

from __future__ import annotations

from swallowtail.kernels.cpu.jit import njit


@njit(cache=True, nogil=True)
def swap(of, bank, own, ends, counts, passes):
    """Exchange the banks of two coordinates of an octet where groups then have fewer banks three times or more."""
    for c in range(len(bank)):
        for k in range(ends[c - 1] if c else 0, ends[c]):
            counts[own[k], bank[c]] += 1
    for turn in range(passes):
        better = 0
        for o in range(len(of)):
            for i in range(8):
                for j in range(i + 1, 8):
                    gain = 0
                    for swap in range(2):
                        # Taking both away and putting them back the other way round shows what it is worth.
                        for side in range(2):
                            c = of[o, i] if side == 0 else of[o, j]
                            other = bank[of[o, j]] if side == 0 else bank[of[o, i]]
                            for k in range(ends[c - 1] if c else 0, ends[c]):
                                for b in (bank[c], other):
                                    over = max(0, counts[own[k], b] - 2)
                                    gain += over * over if swap == 0 else -over * over
                        if swap == 0:
                            _move(of[o, i], bank[of[o, i]], bank[of[o, j]], own, ends, counts)
                            _move(of[o, j], bank[of[o, j]], bank[of[o, i]], own, ends, counts)
                    # Some exchanges that change nothing lead on to better ones.
                    if gain > 0 or (gain == 0 and (turn + o + i + j) % 3 == 0):
                        bank[of[o, i]], bank[of[o, j]] = bank[of[o, j]], bank[of[o, i]]
                        better += gain > 0
                    else:
                        _move(of[o, i], bank[of[o, j]], bank[of[o, i]], own, ends, counts)
                        _move(of[o, j], bank[of[o, i]], bank[of[o, j]], own, ends, counts)
        if better == 0 and turn > 3:
            break


@njit(inner=True)
def _move(c, old, new, own, ends, counts):
    for k in range(ends[c - 1] if c else 0, ends[c]):
        counts[own[k], old] -= 1
        counts[own[k], new] += 1
