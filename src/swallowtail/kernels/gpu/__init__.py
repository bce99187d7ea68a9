"""The GPU back end. `H @ x` goes one file deeper at each step: `backend` (what every back end offers), `butterfly` or
`pairs` (which launches), `launch`, and a kernel in ``triton/`` or ``gluon/``. `plan` and `tables` say how the stages of
a butterfly are shared out and which coefficients the kernels read. Half precision goes to tensor cores where it can:
`blocks` launches, `block_plan` and `block_tables` say how and with which matrices.
"""
