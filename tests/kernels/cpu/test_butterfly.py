"""Butterflies whose rows are shorter, as long as, or longer than registers."""

import numpy as np
import pytest
from cpu_checks import (
    IN_WIDE_DTYPES,
    check_all,
)

from swallowtail import Butterfly, Pairs


@pytest.mark.parametrize("n", range(1, 40))
@IN_WIDE_DTYPES
def test_sizes_round_the_width_of_a_register(n, dtype):
    check_all(Butterfly(n), dtype, 1, 3)
    rng = np.random.default_rng(n)
    pairs = Pairs(n, [rng.permutation(n)[: n // 2 * 2].reshape(-1, 2) for _ in range(4)])
    check_all(pairs, dtype, 1, 35)
