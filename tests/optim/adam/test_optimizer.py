"""GivensAdam: Adam where nothing is rotated, the bases, shapes of all kinds, dtypes, bad input."""

from __future__ import annotations

import copy
import math

import pytest
import torch

from swallowtail.optim import GivensAdam
from swallowtail.optim.adam.bases import Bases, carry_over, matrix_shape, new_side, observe, refit
from swallowtail.optim.adam.state import Numbers

SETTINGS = {
    "depth": 2, "statistics": "sketch", "sketch_columns": 4, "sketch_steps": 5, "statistics_decay": 0.9,
    "lr": 1e-3, "betas": (0.9, 0.99), "eps": 1e-8, "weight_decay": 0.0,
}  # fmt: skip


def trained(optimizer_of, shapes, steps=15, dtype=torch.float64, seed=0):
    """Parameters after some steps on random gradients."""
    generator = torch.Generator().manual_seed(seed)
    params = [
        torch.nn.Parameter(torch.randn(s, generator=generator, dtype=torch.float64).to(dtype)) for s in shapes
    ]
    optimizer = optimizer_of(params)
    for _ in range(steps):
        for p in params:
            p.grad = (
                torch.randn(p.shape, generator=generator, dtype=torch.float64).to(dtype) + 0.1 * p.detach()
            )
        optimizer.step()
    return params, optimizer


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_without_rotation_it_is_adamw(weight_decay):
    shapes = [(5, 7), (3,), (), (4, 3, 2, 2), (6, 1)]
    ours, _ = trained(lambda p: GivensAdam(p, 1e-2, wiring="identity", weight_decay=weight_decay), shapes)
    theirs, _ = trained(
        lambda p: torch.optim.AdamW(p, 1e-2, betas=(0.9, 0.99), weight_decay=weight_decay), shapes
    )
    for p, q in zip(ours, theirs, strict=True):
        assert torch.allclose(p, q, rtol=1e-12)


@pytest.mark.parametrize("wiring", ["pairs", "butterfly", "random"])
def test_a_fixed_basis_is_adam_on_rotated_parameters(wiring):
    """With a basis that never changes after the first step, W is Q_L W̃ Q_Rᵀ with W̃ under plain Adam."""
    (W,), optimizer = trained(lambda p: GivensAdam(p, 1e-2, wiring=wiring, refresh=10**6), [(8, 6)])
    bases = Bases([optimizer.state[W]], (8, 6), 2)
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(8, 6, generator=generator, dtype=torch.float64)
    rotated = torch.nn.Parameter(bases.into(start[None])[0].mT.contiguous())
    plain = torch.optim.Adam([rotated], 1e-2, betas=(0.9, 0.99))
    for _ in range(15):
        here = bases.back(rotated.detach().mT.contiguous()[None])[0]
        g = torch.randn(8, 6, generator=generator, dtype=torch.float64) + 0.1 * here
        rotated.grad = bases.into(g[None])[0].mT.contiguous()
        plain.step()
    assert torch.allclose(bases.back(rotated.detach().mT.contiguous()[None])[0], W.detach(), atol=1e-10)


@pytest.mark.parametrize("statistics", ["sketch", "covariance"])
@pytest.mark.parametrize("kind", ["pairs", "butterfly"])
def test_bases_decorrelate_planted_gradients(kind, statistics):
    """Gradients a bᵀ + noise: in the learned basis most of the energy is in one entry."""
    group = {**SETTINGS, "statistics": statistics}
    like = torch.zeros((), dtype=torch.float64)
    state = {**new_side("left", 16, kind, 8, group, like), **new_side("right", 8, kind, 16, group, like)}
    a, b = torch.randn(16, 1, dtype=torch.float64), torch.randn(1, 8, dtype=torch.float64)
    for t in range(1, 11):
        G = (a @ b) * torch.randn((), dtype=torch.float64) + 0.01 * torch.randn(16, 8, dtype=torch.float64)
        observe([state], G[None], Numbers.of(state, t, (16, 8), group), group)
    refit([state], (16, 8), group)
    bases = Bases([state], (16, 8), 2)
    Z = bases.into(G[None])
    assert torch.allclose(bases.back(Z)[0], G)
    assert float(Z.abs().max() / Z.norm()) > 0.95


def test_first_moment_survives_a_change_of_basis():
    (W,), optimizer = trained(lambda p: GivensAdam(p, 1e-2, refresh=10), [(8, 6)], steps=9)
    state = optimizer.state[W]
    before = Bases([state], (8, 6), 2).back(state["exp_avg"][None])[0]
    g = torch.randn(8, 6, dtype=torch.float64)
    W.grad = g.clone()
    angles = state["left_angles"].clone()
    optimizer.step()
    after = Bases([state], (8, 6), 2).back(state["exp_avg"][None])[0]
    assert angles.shape != state["left_angles"].shape or not torch.equal(angles, state["left_angles"])
    assert torch.allclose(after, before.lerp(g, 0.1))


def test_second_moments_follow_the_pairs():
    """With one eigenbasis the second moments are known: E z² in the new basis, whatever the old one was."""
    generator = torch.Generator().manual_seed(0)
    m, n = 6, 4
    spread = torch.rand(n, m, generator=generator, dtype=torch.float64)
    eye = [torch.linalg.qr(torch.randn(k, k, generator=generator, dtype=torch.float64))[0] for k in (m, n)]
    group = {**SETTINGS, "depth": 4, "statistics": "covariance"}
    like = torch.zeros((), dtype=torch.float64)
    states = []
    for covariances in (
        (torch.eye(m), torch.eye(n)),
        (eye[0] * torch.arange(1, m + 1) @ eye[0].T, eye[1] * torch.arange(1, n + 1) @ eye[1].T),
    ):
        state = {"exp_avg": torch.zeros(n, m, dtype=torch.float64), "exp_avg_sq": spread.clone()}
        for side, size, other, covariance in zip(("left", "right"), (m, n), (n, m), covariances, strict=True):
            state.update(new_side(side, size, "pairs", other, group, like))
            state[f"{side}_covariance"] = covariance.to(torch.float64)
        refit([state], (m, n), group)
        states.append(state)
    old, new = (Bases([state], (m, n), 2) for state in states)
    carry_over(old, new, [states[0]])
    # Uncorrelated entries with variances `spread` in the old basis (the identity), seen from the new one.
    draws = spread.sqrt() * torch.randn(20000, n, m, generator=generator, dtype=torch.float64)
    seen = new.into(draws.mT.contiguous()).square().mean(0)
    assert not torch.allclose(seen, spread, rtol=0.2)
    assert torch.allclose(seen, states[0]["exp_avg_sq"], rtol=0.06)


@pytest.mark.parametrize("wiring", ["auto", "butterfly"])
def test_foreach_and_forloop_agree(wiring):
    shapes = [(6, 5), (6, 5), (5,), (6, 5), (5,), (3, 3)]
    together, _ = trained(lambda p: GivensAdam(p, 1e-2, wiring=wiring, foreach=True), shapes, steps=25)
    alone, _ = trained(lambda p: GivensAdam(p, 1e-2, wiring=wiring, foreach=False), shapes, steps=25)
    for p, q in zip(together, alone, strict=True):
        assert torch.allclose(p, q, rtol=1e-10)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [((), None), ((5,), None), ((5, 1), None), ((1, 5), None), ((4, 5), (4, 5)), ((8, 3, 2, 2), (8, 12))],
)
def test_matrix_shape(shape, expected):
    assert matrix_shape(torch.Size(shape)) == expected


def test_long_sides_are_left_alone():
    (E,), optimizer = trained(lambda p: GivensAdam(p, max_side=50), [(100, 8)], steps=3)
    assert "left_angles" not in optimizer.state[E]
    assert "right_angles" in optimizer.state[E]


def test_wide_layers_get_butterflies():
    (W,), optimizer = trained(lambda p: GivensAdam(p), [(600, 4)], steps=2)
    assert "left_pairs" not in optimizer.state[W]
    assert "right_pairs" in optimizer.state[W]


def test_state_is_smaller_than_soaps():
    (W,), optimizer = trained(lambda p: GivensAdam(p), [(1024, 1024)], steps=2, dtype=torch.float32)
    floats = sum(v.numel() for v in optimizer.state[W].values())
    assert floats < 6 * 1024**2  # m, v, two covariances and two bases


def test_half_precision_parameters_have_float32_state_also_after_loading():
    params, optimizer = trained(lambda p: GivensAdam(p), [(8, 6), (5,)], dtype=torch.bfloat16)
    twin = GivensAdam([torch.nn.Parameter(p.detach().clone()) for p in params])
    twin.load_state_dict(optimizer.state_dict())
    for state in twin.state.values():
        assert {v.dtype for v in state.values()} <= {torch.float32, torch.int64}
    assert params[0].dtype == torch.bfloat16


def test_loaded_state_is_a_copy():
    params, optimizer = trained(lambda p: GivensAdam(p), [(8, 6)])
    saved = optimizer.state_dict()
    kept = copy.deepcopy(saved)
    twin = GivensAdam([torch.nn.Parameter(params[0].detach().clone())])
    twin.load_state_dict(saved)
    twin.param_groups[0]["params"][0].grad = torch.ones(8, 6, dtype=torch.float64)
    twin.step()
    assert all(torch.equal(v, saved["state"][0][k]) for k, v in kept["state"][0].items())


def test_gradients_whose_squares_overflow_are_skipped():
    p = torch.nn.Parameter(torch.ones(3, 3))
    optimizer = GivensAdam([p])
    p.grad = torch.full_like(p, 1e30)
    with pytest.warns(RuntimeWarning, match="overflows"):
        optimizer.step()
    assert torch.equal(p, torch.ones(3, 3))
    assert not optimizer.state[p]


def test_parameters_that_would_overflow_are_not_written():
    p = torch.nn.Parameter(torch.full((3,), 6e4, dtype=torch.float16))
    optimizer = GivensAdam([p], lr=1e5)
    p.grad = -torch.ones_like(p)
    with pytest.warns(RuntimeWarning, match="would become"):
        optimizer.step()
    assert bool(torch.isfinite(p).all())


def test_empty_parameters_and_closures():
    p, empty = torch.nn.Parameter(torch.ones(2, 2)), torch.nn.Parameter(torch.ones(0, 4))
    optimizer = GivensAdam([p, empty])

    def closure():
        optimizer.zero_grad()
        loss = p.square().sum() + empty.sum()
        loss.backward()
        return loss

    assert float(optimizer.step(closure)) == 4.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"lr": -1.0}, "lr"),
        ({"betas": (1.0, 0.9)}, r"betas\[0\]"),
        ({"betas": (0.9,)}, "betas"),
        ({"eps": -1e-8}, "eps"),
        ({"weight_decay": -0.1}, "weight_decay"),
        ({"wiring": "full"}, "wiring"),
        ({"statistics": "exact"}, "statistics"),
        ({"depth": 0}, "depth"),
        ({"refresh": 0}, "refresh"),
        ({"sketch_columns": 0}, "sketch_columns"),
        ({"statistics_decay": math.nan}, "statistics_decay"),
    ],
)
def test_bad_hyper_parameters(arguments, message):
    with pytest.raises(ValueError, match=message):
        GivensAdam([torch.nn.Parameter(torch.ones(2))], **arguments)


def test_a_bad_group_is_not_added():
    optimizer = GivensAdam([torch.nn.Parameter(torch.ones(2))])
    with pytest.raises(ValueError, match="lr"):
        optimizer.add_param_group({"params": torch.nn.Parameter(torch.ones(3)), "lr": -1.0})
    assert len(optimizer.param_groups) == 1


def test_a_skipped_step_is_reported_where_it_was_asked_for():
    p = torch.nn.Parameter(torch.ones(3))
    p.grad = torch.full((3,), float("nan"))
    optimizer = GivensAdam([p])
    with pytest.warns(RuntimeWarning, match="skipped") as seen:
        optimizer.step()
    assert seen[0].filename == __file__


def test_bounds_of_numbers_are_readable():
    with pytest.raises(ValueError, match=r"betas\[0\]: expected a finite number ≥ 0 and < 1, got 1"):
        GivensAdam([torch.nn.Parameter(torch.ones(1))], betas=(1.0, 0.9))
