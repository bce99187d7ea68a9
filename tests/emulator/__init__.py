"""An H200 in NumPy: runs the PTX that Triton compiles for it, so that Gluon kernels are tried without a GPU.

Triton's interpreter runs Triton kernels, not Gluon's. Its compiler needs no GPU, and PTX is documented: NVIDIA's
"PTX ISA" says what each instruction does, and how matrices lie in the registers of a warp.

- `ptx`: the text as instructions.
- `arithmetic`: instructions of one thread, as lines of Python on arrays that hold a number per thread.
- `warp`: what the 32 threads of a warp do together: shuffles, matrices, products of matrices.
- `memory`: global and shared memory, with the checks of compute-sanitizer: bounds, alignment, races between warps.
- `machine`: threads that go different ways, barriers, the grid.
- `h200`: a kernel as the package launches it, compiled and run.

It is slow: a tenth of a millisecond per instruction and a few thousand threads. Threads of a warp go in step, as if
``bar.warp.sync`` stood behind every instruction. Timing says nothing.
"""
