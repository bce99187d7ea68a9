"""What GivensAdam keeps of past gradients, for each side of a matrix: a sketch or a covariance.

A sketch holds some columns (left side) or rows (right side) of each of the last gradients. A covariance is a moving
average of GGᵀ or GᵀG.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from swallowtail.optim.adam.gpu import gpu_for
from swallowtail.optim.adam.groups import add_to_moments
from swallowtail.optim.adam.state import SIDES, Side, Stack, State, columns_of, stacked

STATISTICS = ("auto", "sketch", "covariance")


def new_statistics(
    side: Side, kind: str, sizes: tuple[int, int], group: dict[str, Any], like: Tensor
) -> State:
    """An empty record for a side with this kind of basis."""
    n, other = sizes[side.axis], sizes[1 - side.axis]
    # Pairs are chosen from the n×n matrix anyway.
    if group["statistics"] == "covariance" or (group["statistics"] == "auto" and kind == "pairs"):
        return {side.covariance: like.new_zeros(n, n)}
    columns = min(group["sketch_columns"], other)
    return {side.sketch: like.new_zeros(group["sketch_steps"], columns, n)}


def observe(stack: Stack, gradients: list[Tensor]) -> None:
    """Add the gradients of a stack, matrices (m, n), to the records of both sides."""
    for side in SIDES:
        if stack.shards is not None:
            _observe_parts(stack, side, gradients[0])
        elif side.covariance in stack.states[0]:
            _average(stack, side, stacked(gradients))
        elif side.group_moments in stack.states[0]:
            chosen = _chosen(stack, side, stacked(gradients))
            add_to_moments(stack.states, side, chosen, stack.group["statistics_decay"])
        elif side.sketch in stack.states[0]:
            _sketch(stack, side, stacked(gradients))


def _observe_parts(stack: Stack, side: Side, G: Tensor) -> None:
    """The same where each process has some rows G (m/P, n): the records are of all rows, and equal everywhere."""
    state, shards = stack.states[0], stack.shards
    if side.covariance in state:
        rows = G if side.axis else shards.turn(G[None])[0]
        state[side.covariance].lerp_(shards.sum(rows.mT @ rows), 1 - stack.group["statistics_decay"])
    elif side.sketch in state or side.group_moments in state:
        assert stack.sizes is not None
        other = stack.sizes[1 - side.axis]
        columns = columns_of(state, side, other)
        start, every = getattr(stack.numbers, side.start), other // columns
        chosen = torch.arange(start, other, every, device=G.device)[:columns]
        found = shards.every_row(chosen, G) if side.axis else shards.all_rows(G[:, chosen]).mT
        if side.sketch in state:
            state[side.sketch][stack.numbers.slot].copy_(found)
        else:
            add_to_moments([state], side, found[None], stack.group["statistics_decay"])


def _average(stack: Stack, side: Side, G: Tensor) -> None:
    seen = G.mT @ G if side.axis else G @ G.mT
    weight = 1 - stack.group["statistics_decay"]
    for state, covariance in zip(stack.states, seen, strict=True):
        mean = state[side.covariance]
        if stack.on_device is None:
            mean.lerp_(covariance, weight)
        else:
            stack.on_device.assign(mean, torch.lerp(mean, covariance, weight))


def _chosen(stack: Stack, side: Side, G: Tensor) -> Tensor:  # shape: (B, columns, n)
    """This step's equally spaced columns (left side) or rows (right side) of G (B, m, n), as rows."""
    rows = G if side.axis else G.mT  # shape: (B, other side, this side)
    columns = columns_of(stack.states[0], side, rows.shape[1])
    if columns == rows.shape[1]:
        return rows
    start, every = getattr(stack.numbers, side.start), rows.shape[1] // columns
    return rows[:, start::every][:, :columns]


def _sketch(stack: Stack, side: Side, G: Tensor) -> None:
    """Equally spaced columns (rows) of each G into this step's slot of its sketch (slots, columns, side)."""
    sketches = [state[side.sketch] for state in stack.states]
    if stack.on_device is not None:
        for gradient, sketch in zip(G, sketches, strict=True):
            gpu_for(G).sketch(gradient, sketch, side, stack.on_device)
        return
    for chosen, sketch in zip(_chosen(stack, side, G), sketches, strict=True):
        sketch[stack.numbers.slot].copy_(chosen)


def samples(states: list[State], side: Side) -> Tensor:  # shape: (B, n, r)
    """The sketches of B matrices, vectors as columns."""
    return torch.stack([state[side.sketch].flatten(0, 1).T for state in states])


def covariances(states: list[State], side: Side) -> Tensor:  # shape: (B, n, n)
    """The covariances of B matrices."""
    return torch.stack([state[side.covariance] for state in states])
