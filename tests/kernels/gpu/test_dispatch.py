"""Which kernels a wiring of pairs goes to."""

from __future__ import annotations

import pytest
import torch
from interpreter import INTERPRETED, needs_kernels

pytest.importorskip("triton", reason="the GPU back end needs Triton")

from kernels.gpu.checking import problem
from kernels.gpu.grouping import fixed_groups, free_groups

from swallowtail.kernels.gpu import dispatch
from swallowtail.kernels.gpu.group_tables import MadeGroups
from swallowtail.kernels.gpu.pairs import PreparedPairs
from swallowtail.kernels.gpu.rounds import RoundTables


@needs_kernels
def test_blocks_then_rounds_then_pairs():
    fixed, free = fixed_groups(64, 16, 1), free_groups(300, 16, 1)
    once = lambda wiring, dtype, batch=1: type(
        dispatch.prepare_once(wiring, problem(wiring, batch, 1, dtype)[0], dtype)
    )
    assert once(fixed, torch.float32) is MadeGroups
    assert once(fixed, torch.float64) is PreparedPairs
    assert once(fixed, torch.float32, 2) is PreparedPairs
    assert once(free, torch.float32) is (PreparedPairs if INTERPRETED else RoundTables)  # Gluon needs a GPU
    assert once(free, torch.float64) is PreparedPairs


@needs_kernels
def test_gradients_are_those_of_rounds_while_vectors_find_room():
    once = lambda n: type(
        dispatch.prepare_training(
            w := free_groups(n, 16, 1), problem(w, 1, 1, torch.float32)[0], torch.float32
        )
    )
    assert once(300) is (PreparedPairs if INTERPRETED else RoundTables)
    assert once(2000) is PreparedPairs
