"""Gluon kernel for the Q of many small QR decompositions: Gram–Schmidt, every column in the registers of two threads.

A scalar product with a column takes one exchange between the two. In step k, column k
goes to shared memory, and all threads subtract what their columns have of it. That loses digits where columns are
nearly parallel, so it is done twice: then columns are orthogonal to rounding (twice is enough unless the condition
number exceeds 10⁷, and the identity that is added to moments keeps it below). The Householder reflections of
`fit_kernels.householder_kernel` exchange sums between all threads in every step, and take ten times as long.
"""

from __future__ import annotations

from swallowtail.kernels.gpu.gluon.pairs import shared_address
from swallowtail.kernels.gpu.triton_private import gl, gluon, thread_barrier
from swallowtail.optim.adam.gpu.group_kernels import FIT, GROUP_ROW, GROUP_SIZE, GROUP_WIDTH, N_NUMBERS, USED


@gluon.constexpr_function
def _chains(SIZE):
    """Sums that a thread adds up at the same time; it has at least four neighbouring rows of each."""
    return min(4, SIZE // 8)


@gluon.constexpr_function
def _columns(SIZE):
    """The layout of (chains, SIZE / chains, SIZE): rows cut into chains, a column in two neighbouring threads."""
    chains = min(4, SIZE // 8)
    return gl.BlockedLayout([chains, SIZE // chains // 2, 1], [1, 2, 16], [1, 1, SIZE // 16], [1, 0, 2])


@gluon.jit
def _put(address, owner, x):
    """Store four rows of the column that owns them."""
    gl.inline_asm_elementwise(
        "{ .reg .pred p; setp.ne.b32 p, $8, 0; @p st.shared.v4.f32 [$4], {$12, $13, $14, $15}; "
        "mov.b32 $0, 0; mov.b32 $1, 0; mov.b32 $2, 0; mov.b32 $3, 0; }",
        "=r,=r,=r,=r,r,r,r,r,r,r,r,r,f,f,f,f", [address, owner, x], dtype=gl.int32, is_pure=False, pack=4,
    )  # fmt: skip


@gluon.jit
def _get(address):
    """Load four rows of the column that was stored."""
    return gl.inline_asm_elementwise(
        "ld.shared.v4.f32 {$0, $1, $2, $3}, [$4];", "=f,=f,=f,=f,r,r,r,r", [address],
        dtype=gl.float32, is_pure=False, pack=4,
    )  # fmt: skip


@gluon.jit
def gram_schmidt_kernel(
    x_ptr, q_ptr, group_ptr, numbers_ptr, length, FURTHER: gl.constexpr, SIZE: gl.constexpr, WARPS: gl.constexpr
):  # fmt: skip
    """Q of the QR decomposition of x (groups, SIZE, SIZE), where groups are fitted (as `group_kernels` has it).

    R has no negative diagonal entry. A column of zeros becomes that of the identity. ``length`` is SIZE: where results
    are stored it is no constant, or addresses would stay in registers, which columns need, from the load to the end.
    """
    group_ptr += gl.program_id(0) * GROUP_WIDTH
    numbers_ptr += gl.load(group_ptr + GROUP_ROW) * N_NUMBERS
    fit = gl.load(numbers_ptr + FIT) * gl.load(numbers_ptr + USED)
    if (fit == 2) if FURTHER else (fit > 0):
        _decompose(x_ptr, q_ptr, gl.load(group_ptr + GROUP_SIZE).to(gl.int32), length, SIZE, WARPS)


@gluon.jit
def _decompose(x_ptr, q_ptr, s, length, SIZE: gl.constexpr, WARPS: gl.constexpr):
    L: gl.constexpr = _columns(SIZE)
    N_CHAINS: gl.constexpr = _chains(SIZE)
    LENGTH: gl.constexpr = SIZE // N_CHAINS
    chain = gl.arange(0, N_CHAINS, gl.SliceLayout(1, gl.SliceLayout(2, L)))[:, None, None]
    link = gl.arange(0, LENGTH, gl.SliceLayout(0, gl.SliceLayout(2, L)))[None, :, None]
    column = gl.arange(0, SIZE, gl.SliceLayout(0, gl.SliceLayout(1, L)))[None, None, :]
    row = chain * LENGTH + link
    first = gl.program_id(0).to(gl.int64) * (SIZE * SIZE)
    x = gl.load(x_ptr + first + (row * SIZE + column), mask=(row < s) & (column < s), other=0.0)
    unit = gl.where(row == column, 1.0, 0.0)
    largest = _most(gl.abs(x))
    # Squares of small numbers would underflow; what lies beyond the matrix is the identity's.
    x = gl.where(largest > 0, x / gl.where(largest > 0, largest, 1.0), unit)
    memory = gl.allocate_shared_memory(gl.float32, [2, SIZE], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    # Without a use the compiler would drop the allocation.
    memory.index(0).store(gl.zeros([SIZE], gl.float32, gl.BlockedLayout([1], [32], [WARPS], [0])))
    thread_barrier()
    put = shared_address(row * 4 + column * 0)
    get = shared_address((chain * LENGTH + link) * 4)
    for k in range(2 * s):
        step = gl.where(k < s, k, k - s)
        half = (k & 1) * (4 * SIZE)
        _put(put + half, (column == step).to(gl.int32) + row * 0, x)
        thread_barrier()
        c = _get(get + half)
        square = _sum(c * c)
        part = _sum(c * x)
        some = square > 0
        safe = gl.where(some, square, 1.0)
        # The column itself is divided by its length; those before it stay.
        share = gl.where(column == step, 1 - 1 / gl.sqrt(safe), part / safe)
        x = x - gl.where(some & (column >= step), share, 0.0) * c
    gl.store(q_ptr + first + (row * length + column), x, mask=(row < s) & (column < s))


@gluon.jit
def _sum(x):
    """Of each column, (1, 1, columns): chains side by side, then their sums."""
    return gl.expand_dims(gl.expand_dims(gl.sum(gl.sum(x, axis=1), axis=0), 0), 1)


@gluon.jit
def _most(x):
    return gl.expand_dims(gl.expand_dims(gl.max(gl.max(x, axis=1), axis=0), 0), 1)
