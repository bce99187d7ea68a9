"""Where pieces of a row lie in shared memory, for `gluon.half_rounds` and the tables it reads; it needs no Triton."""

# A row has a number for each vector of a program; a piece is eight of them. By how many vectors there are: bits of the
# number of a piece that are combined with "xor", so that pieces change places in their row; the rest of it is added.
# `half_plan.places` says by what a row's pieces are turned.
TURNED = {64: 7, 48: 1, 32: 3, 24: 0, 16: 1}
