"""Where pieces of a row lie in shared memory, for `gluon.half_rounds` and the tables it reads; it needs no Triton."""

# A piece is eight numbers of a row, which has one for each vector of a program. By the number of vectors: bits of a piece's
# number that are combined with "xor", so that pieces change places in their row; the rest of the number is added.
# `half_plan.places` says by what a row's pieces are turned.
TURNED = {64: 7, 48: 1, 32: 3, 24: 0, 16: 1}
