"""What the Gluon kernels for butterflies share: which thread has which numbers, and how they are loaded and stored.

A program keeps ROWS whole vectors in its registers. Its groups and tables are those of `kernels.gpu.triton.groups`: a
group has the vectors as (2^r, ROWS, M), with all 2^r partners of a position in one thread. Threads exchange numbers
once between two groups. The layouts are written here and not left to Triton, which chooses two layouts for one tile
and exchanges parts of it twice. That traffic is what takes the time on an H200.

Triton's interpreter cannot run Gluon. There, for other sizes, and in float64, Triton's kernels compute the same.
"""

from __future__ import annotations

from swallowtail.kernels.gpu.triton.groups import first_bit, radix
from swallowtail.kernels.gpu.triton_private import gl, gluon


@gluon.constexpr_function
def group_layout(GROUP, GROUPS, BITS, ROWS, WARPS):
    """The layout of a group's (2^r, ROWS, M): neighbouring threads have neighbouring positions, with all partners."""
    partners = 2 ** radix(GROUP, GROUPS, BITS)
    positions = 2**BITS // (partners * 32 * WARPS)
    return gl.BlockedLayout([partners, ROWS, positions], [1, 1, 32], [1, 1, WARPS], [2, 1, 0])


@gluon.constexpr_function
def _wide(ptr, WARPS):
    """The layout of (ROWS, N) in which memory is read best: 16 neighbouring bytes per thread."""
    return gl.BlockedLayout([1, 128 // ptr.dtype.element_ty.primitive_bitwidth], [1, 32], [1, WARPS], [1, 0])


@gluon.constexpr_function
def _in_memory(ptr, GROUP, GROUPS, BITS, ROWS, WARPS):
    """The layout in which memory is read or written for a group.

    It is the group's own in two cases. In the last group, neighbouring threads have neighbouring numbers. In a first
    group of eight half-precision numbers, a thread has 16 neighbouring bytes. Otherwise it is `_wide`.
    """
    partners = 2 ** radix(GROUP, GROUPS, BITS)
    if GROUP == GROUPS - 1:
        return group_layout(GROUP, GROUPS, BITS, ROWS, WARPS)
    if GROUP == 0 and partners * ptr.dtype.element_ty.primitive_bitwidth <= 128:
        return gl.BlockedLayout([partners, ROWS, 1], [1, 1, 32], [1, 1, WARPS], [0, 1, 2])
    return _wide(ptr, WARPS)


@gluon.constexpr_function
def previous(GROUP, GROUPS, GROWING):
    """The group before this one in a sweep; the first group itself, because data comes in its layout."""
    return max(GROUP - 1, 0) if GROWING else min(GROUP + 1, GROUPS - 1)


@gluon.jit
def _as_group(x, GROUP: gl.constexpr, GROUPS: gl.constexpr, BITS: gl.constexpr, ROWS: gl.constexpr):
    """(ROWS, N) → (2^r, ROWS, M)."""
    RADIX: gl.constexpr = 2 ** radix(GROUP, GROUPS, BITS)
    LOW: gl.constexpr = 2 ** first_bit(GROUP, GROUPS, BITS)
    M: gl.constexpr = 2**BITS // RADIX
    return gl.reshape(gl.permute(gl.reshape(x, (ROWS, M // LOW, RADIX, LOW)), (2, 0, 1, 3)), (RADIX, ROWS, M))


@gluon.jit
def _as_vectors(x, GROUP: gl.constexpr, GROUPS: gl.constexpr, BITS: gl.constexpr, ROWS: gl.constexpr):
    """(2^r, ROWS, M) → (ROWS, N)."""
    RADIX: gl.constexpr = 2 ** radix(GROUP, GROUPS, BITS)
    LOW: gl.constexpr = 2 ** first_bit(GROUP, GROUPS, BITS)
    M: gl.constexpr = 2**BITS // RADIX
    return gl.reshape(gl.permute(gl.reshape(x, (RADIX, ROWS, M // LOW, LOW)), (1, 2, 0, 3)), (ROWS, 2**BITS))


@gluon.jit
def exchange(
    x, BEFORE: gl.constexpr, GROUP: gl.constexpr, GROUPS: gl.constexpr, BITS: gl.constexpr, ROWS: gl.constexpr,
    WARPS: gl.constexpr,
):  # fmt: skip
    """Vectors in the layout of group BEFORE → in the layout of GROUP."""
    if BEFORE != GROUP:
        x = _as_group(_as_vectors(x, BEFORE, GROUPS, BITS, ROWS), GROUP, GROUPS, BITS, ROWS)
        x = gl.convert_layout(x, group_layout(GROUP, GROUPS, BITS, ROWS, WARPS))
    return x


@gluon.jit
def coordinates(GROUP: gl.constexpr, GROUPS: gl.constexpr, BITS: gl.constexpr, LAYOUT: gl.constexpr):
    """Coordinates of a group's (2^r, 1, M)."""
    RADIX: gl.constexpr = 2 ** radix(GROUP, GROUPS, BITS)
    LOW: gl.constexpr = 2 ** first_bit(GROUP, GROUPS, BITS)
    partner = gl.arange(0, RADIX, gl.SliceLayout(1, gl.SliceLayout(2, LAYOUT)))[:, None, None]
    position = gl.arange(0, 2**BITS // RADIX, gl.SliceLayout(0, gl.SliceLayout(1, LAYOUT)))[None, None, :]
    if GROUP == 0:
        at = position * RADIX + partner  # written out, so that the compiler sees what is contiguous
    elif GROUP == GROUPS - 1:
        at = partner * LOW + position
    else:
        at = (position // LOW) * (LOW * RADIX) + partner * LOW + position % LOW
    return at


@gluon.jit
def _offsets(
    ptr, first, n, n_rows, GROUP: gl.constexpr, GROUPS: gl.constexpr, BITS: gl.constexpr, ROWS: gl.constexpr,
    WARPS: gl.constexpr, EVEN: gl.constexpr,
):  # fmt: skip
    """Offsets and mask of ROWS vectors in the layout `_in_memory`."""
    layout: gl.constexpr = _in_memory(ptr, GROUP, GROUPS, BITS, ROWS, WARPS)
    if len(layout.order) == 3:
        rows = first + gl.arange(0, ROWS, gl.SliceLayout(0, gl.SliceLayout(2, layout)))[None, :, None]
        at = coordinates(GROUP, GROUPS, BITS, layout)
    else:
        rows = first + gl.arange(0, ROWS, gl.SliceLayout(1, layout))[:, None]
        at = gl.arange(0, 2**BITS, gl.SliceLayout(0, layout))[None, :]
    mask = rows < n_rows
    if not EVEN:
        mask = mask & (at < n)
    return rows * n + at, mask


@gluon.jit
def load(
    ptr, first, n, n_rows, DTYPE: gl.constexpr, GROUP: gl.constexpr, GROUPS: gl.constexpr, BITS: gl.constexpr,
    ROWS: gl.constexpr, WARPS: gl.constexpr, EVEN: gl.constexpr,
):  # fmt: skip
    """ROWS vectors from row ``first`` on, in the layout of GROUP. EVEN: n = 2^BITS."""
    offsets, mask = _offsets(ptr, first, n, n_rows, GROUP, GROUPS, BITS, ROWS, WARPS, EVEN)
    x = gl.load(ptr + offsets, mask=mask, other=0.0)
    if len(x.shape) == 2:
        x = _as_group(x, GROUP, GROUPS, BITS, ROWS)
    return gl.convert_layout(x, group_layout(GROUP, GROUPS, BITS, ROWS, WARPS)).to(DTYPE)


@gluon.jit
def store(
    ptr, x, first, n, n_rows, GROUP: gl.constexpr, GROUPS: gl.constexpr, BITS: gl.constexpr, ROWS: gl.constexpr,
    WARPS: gl.constexpr, EVEN: gl.constexpr,
):  # fmt: skip
    """Write ROWS vectors that are in the layout of GROUP."""
    offsets, mask = _offsets(ptr, first, n, n_rows, GROUP, GROUPS, BITS, ROWS, WARPS, EVEN)
    x = x.to(ptr.dtype.element_ty)
    if len(offsets.shape) == 2:
        x = _as_vectors(x, GROUP, GROUPS, BITS, ROWS)
    gl.store(
        ptr + offsets, gl.convert_layout(x, _in_memory(ptr, GROUP, GROUPS, BITS, ROWS, WARPS)), mask=mask
    )


@gluon.jit
def split_pairs(x, BIT: gl.constexpr):
    """(2^r, ROWS, M) → the two sides of one stage's pairs, each (ABOVE, BELOW, ROWS, M)."""
    BELOW: gl.constexpr = 2**BIT
    x = gl.reshape(x, (x.shape[0] // (2 * BELOW), 2, BELOW, x.shape[1], x.shape[2]))
    return gl.split(gl.permute(x, (0, 2, 3, 4, 1)))


@gluon.jit
def join_pairs(a, b, LAYOUT: gl.constexpr):
    """Undo `split_pairs`."""
    shape: gl.constexpr = (2 * a.shape[0] * a.shape[1], a.shape[2], a.shape[3])
    return gl.convert_layout(
        gl.reshape(gl.permute(gl.join(a, b), (0, 4, 1, 2, 3)), shape), LAYOUT, assert_trivial=True
    )


@gluon.jit
def coefficients(
    ptr, pairs, BIT: gl.constexpr, GROUP: gl.constexpr, GROUPS: gl.constexpr, BITS: gl.constexpr,
    WARPS: gl.constexpr,
):  # fmt: skip
    """One stage's coefficients, (ABOVE, BELOW, 1, M), in the threads that have ``pairs`` (ABOVE, BELOW, ROWS, M)."""
    H: gl.constexpr = 2 ** (radix(GROUP, GROUPS, BITS) - 1)
    M: gl.constexpr = 2**BITS // (2 * H)
    STAGE: gl.constexpr = first_bit(GROUP, GROUPS, BITS) + BIT
    WIDE: gl.constexpr = 4 if H >= 4 else H
    table: gl.constexpr = gl.BlockedLayout(
        [M // (32 * WARPS), H // WIDE, WIDE], [32, 1, 1], [WARPS, 1, 1], [2, 1, 0]
    )
    position = gl.arange(0, M, gl.SliceLayout(1, gl.SliceLayout(2, table)))[:, None, None]
    high = gl.arange(0, H // WIDE, gl.SliceLayout(0, gl.SliceLayout(2, table)))[None, :, None]
    low = gl.arange(0, WIDE, gl.SliceLayout(0, gl.SliceLayout(1, table)))[None, None, :]
    u = gl.load(ptr + STAGE * (M * H) + high * (M * WIDE) + position * WIDE + low)
    u = gl.reshape(gl.permute(u, (1, 2, 0)), (H // 2**BIT, 2**BIT, 1, M))
    layout: gl.constexpr = pairs.type.layout
    return gl.convert_layout(u, layout, assert_trivial=True)
