"""One step of GivensAdam on its stacks, and the bases that it keeps for them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from swallowtail.optim.adam.bases import Bases, carry_over, has_pairs, observe, refit, stacked
from swallowtail.optim.adam.state import Stack, adam


class Updates:
    """What parameters become, and the bases they are looked at in, which last from one fit to the next.

    ``on_replacement`` is called when tensors that earlier updates read are no longer those that later ones will.
    """

    def __init__(self, on_replacement: Callable[[], None]) -> None:
        self._bases: dict[tuple[int, ...], Bases] = {}
        self._on_replacement = on_replacement

    def all(self, stacks: list[Stack]) -> list[Tensor]:
        """What all parameters become; their state moves on."""
        new: list[Tensor] = []
        for stack in stacks:
            G, bases = stack.gradients(), None
            if stack.sizes is not None:
                matrices = stacked([g.reshape(stack.sizes) for g in G])
                observe(stack.states, matrices, stack.numbers, stack.group)
                bases = self._refitted(stack) if stack.refit else self._bases_of(stack)
                G = list(matrices.unbind())
            new += _updated(stack, G, bases)
        return new

    def _refitted(self, stack: Stack) -> Bases:
        """New bases; the moments are carried over."""
        assert stack.sizes is not None
        old = None if stack.t == 1 else self._bases_of(stack)
        refit(stack.states, stack.sizes, stack.group)
        new = Bases(stack.states, stack.sizes, stack.group["depth"])
        if old is not None:
            carry_over(old, new, stack.states)
            if stack.numbers.row is not None and not has_pairs(stack.states[0]) and old.could_take(new):
                old.take(new)  # recorded steps read them where they are
                new = old
        key, changed = tuple(map(id, stack.params)), set(map(id, stack.params))
        # Also where these tensors were stacked with others, their bases are of yesterday.
        outdated = [k for k in self._bases if k != key and not changed.isdisjoint(k)]
        for other in outdated:
            del self._bases[other]
        if outdated or self._bases.get(key) is not new:
            self._on_replacement()
        self._bases[key] = new
        return new

    def _bases_of(self, stack: Stack) -> Bases:
        assert stack.sizes is not None
        key = tuple(map(id, stack.params))
        if key not in self._bases:
            self._bases[key] = Bases(stack.states, stack.sizes, stack.group["depth"])
            self._on_replacement()
        return self._bases[key]


def _updated(stack: Stack, gradients: list[Tensor], bases: Bases | None) -> list[Tensor]:
    """What the parameters of a stack become; their moments move on."""
    row = stack.numbers.row
    vectors = bases is None and gradients[0].dtype == torch.float32
    if row is not None and (vectors or (bases is not None and bases.fused is not None)):
        from swallowtail.optim.adam.gpu import launch as _gpu  # it needs Triton

        step = _gpu.vector_step if bases is None else bases.fused.step
        return [
            step(G, p.detach(), m, v, *stack.betas, row)
            for G, p, m, v in zip(gradients, stack.params, *stack.moments(), strict=True)
        ]
    if bases is None:
        update = adam(stack, gradients)
    else:
        update = adam(stack, list(bases.into(stacked(gradients)).unbind()))
        update = list(bases.back(stacked(update)).unbind())
    pairs = [(p, u.reshape(p.shape)) for p, u in zip(stack.params, update, strict=True)]
    if row is None:
        lr, kept = stack.numbers.lr, stack.numbers.kept
        return [torch.add(p.to(u.dtype) * kept, u, alpha=-lr).to(p.dtype) for p, u in pairs]
    return [(p.to(u.dtype) * row[3] - u * row[2]).to(p.dtype) for p, u in pairs]
