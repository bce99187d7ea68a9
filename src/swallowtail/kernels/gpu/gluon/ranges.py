"""`triton.ranges` for Gluon kernels that keep whole vectors (2^r, ROWS, M) in registers, in float32.

The largest of non-negative numbers is found among integers: their bits have the same order, and the device has an
instruction for the largest integer of a warp.
"""

from __future__ import annotations

from swallowtail.kernels.gpu.triton.ranges import NOTHING
from swallowtail.kernels.gpu.triton_private import gl, gluon


@gluon.jit
def bits_of(x):
    """x without its signs, as integers."""
    return x.to(gl.int32, bitcast=True) & 0x7FFFFFFF


@gluon.jit
def largest(x):
    """The bits of the largest number of each vector of x, (ROWS,)."""
    return gl.max(gl.max(bits_of(x), axis=0), axis=1)  # partners first: they are in one thread


@gluon.jit
def largest_of_two(y, g):
    """`largest` of y and of g: their threads meet once."""
    both = gl.max(gl.join(gl.max(bits_of(y), axis=0), gl.max(bits_of(g), axis=0)), axis=1)
    return gl.split(both)


@gluon.jit
def exponent(bits):
    """e with 2^e ≤ largest < 2^(e+1), but at least −120 and at most 120."""
    return gl.minimum(gl.maximum((bits >> 23) - 127, -120), 120)


@gluon.jit
def product_exponent(y_bits, g_bits):
    """The exponent of the products of two vectors with these largest numbers."""
    return gl.where((y_bits == 0) | (g_bits == 0), NOTHING, exponent(y_bits) + exponent(g_bits))


@gluon.jit
def power(e):
    """2^e, a normal number."""
    return ((e + 127) << 23).to(gl.float32, bitcast=True)


@gluon.jit
def times_power(x, e, PARTS: gl.constexpr):
    """x · 2^e for each vector, in so many factors on the same side of 1; e (ROWS,) in any layout."""
    LAYOUT: gl.constexpr = gl.SliceLayout(1, gl.SliceLayout(0, x.type.layout))
    e = gl.convert_layout(e, LAYOUT)
    part = e // PARTS
    for k in gl.static_range(PARTS):
        factor = power(part if k + 1 < PARTS else e - (PARTS - 1) * part)
        x = x * gl.expand_dims(gl.expand_dims(factor, 1), 0)
    return x
