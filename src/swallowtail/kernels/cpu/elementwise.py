"""What the CPU back end does with vectors between and after rotations."""

from __future__ import annotations

from swallowtail.kernels.cpu.codegen.flags import clear_flags, raised_flags
from swallowtail.kernels.cpu.codegen.shapes import as_row
from swallowtail.kernels.cpu.jit import njit


@njit(nogil=True, cache=True)
def multiply(address, count, factor, like):
    """The ``count`` numbers at an address times a power of two."""
    row = as_row(address, count, like)
    for i in range(count):
        row[i] *= factor


@njit(nogil=True, cache=True)
def multiply_rows(x, factors):
    """x[v, i] ← factors[i]·x[v, i]. Returns the flags raised."""
    clear_flags()
    for v in range(x.shape[0]):
        for i in range(x.shape[1]):
            x[v, i] *= factors[i]
    return raised_flags()


@njit(nogil=True, cache=True)
def weighted_squares(z, count, weights, out):
    """Σᵢ weights[i]·z[v, i]² of each of the ``count`` rows at address z, to address out. Returns the flags raised."""
    clear_flags()
    n = len(weights)
    sums = as_row(out, count, weights)
    for v in range(count):
        sums[v] = _weighted_squares(as_row(z + v * n * weights.itemsize, n, weights), weights)
    return raised_flags()


@njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz"})
def _weighted_squares(z, weights):
    """Σ weights·z²; lanes may be summed in any order."""
    total = z[0] * 0
    for i in range(len(z)):
        total += _weighted_square(weights[i], z[i])
    return total


@njit(nogil=True, cache=True, fastmath={"contract"})
def _weighted_square(weight, z):
    """From left to right, whatever the sum's order: z² may leave the range where weight·z and the result do not."""
    return weight * z * z
