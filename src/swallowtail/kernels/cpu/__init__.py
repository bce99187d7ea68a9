"""The CPU back end. `H @ x` goes one file deeper at each step: `backend` (what every back end offers), `launch` (a
kernel with its coefficients, over threads), `butterfly` or `pairs` (Numba's loops over rows), and the LLVM vector code
that ``codegen/`` emits. `coefficients` and `plan` say what the kernels read. `mend` does again what left the range.
"""
