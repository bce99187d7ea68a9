"""Triton kernels that make the plain form's tables from angles, and pack them."""

from __future__ import annotations

import triton
import triton.language as tl

from swallowtail.kernels.gpu.triton.angles import cos_sin


@triton.jit(do_not_specialize=["K", "size"])
def table_kernel(angles_ptr, index_ptr, u_ptr, v_ptr, K, size, BLOCK: tl.constexpr):
    """u = cos θ and v = sin θ, in the order of ``index`` (size,): angle numbers from 1; 0 means no angle, θ = 0."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    batch = tl.program_id(1).to(tl.int64)
    index = tl.load(index_ptr + at, mask=at < size, other=0)
    theta = tl.load(angles_ptr + batch * K + index - 1, mask=index > 0, other=0.0)
    out = batch * size + at
    if u_ptr.dtype.element_ty == tl.float64:
        c = tl.cos(theta.to(tl.float64))
        s = tl.sin(theta.to(tl.float64))
    else:
        c, s = cos_sin(theta)
    tl.store(u_ptr + out, c, mask=at < size)
    tl.store(v_ptr + out, s, mask=at < size)


@triton.jit(do_not_specialize=["size"])
def pack_kernel(u_ptr, v_ptr, word_ptr, size, BLOCK: tl.constexpr):
    """u and v as two fp16 numbers in one word, u in the lower half."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    u = tl.load(u_ptr + at, mask=at < size, other=0.0).to(tl.float16).to(tl.int16, bitcast=True)
    v = tl.load(v_ptr + at, mask=at < size, other=0.0).to(tl.float16).to(tl.int16, bitcast=True)
    tl.store(word_ptr + at, (u.to(tl.int32) & 0xFFFF) | (v.to(tl.int32) << 16), mask=at < size)
