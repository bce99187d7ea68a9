"""Rotations with channel scales: undone, folded into a Linear from either side, and taken out again."""

import pytest
import torch
from cases import normal, relative_error
from torch.nn.utils import prune

from swallowtail import Butterfly, Grouped
from swallowtail.errors import ArgumentError
from swallowtail.nn import Rotate

WIRINGS = {
    "groups of 128": Grouped.fixed(256),
    "remainder": Grouped.fixed(37, size=8, layers=3),
    "butterfly": Butterfly(24, 2),
}
EPS = torch.finfo(torch.float64).eps


def transform(wiring, scales=True):
    layer = Rotate(wiring=wiring, init="random", seed=0, scales=scales, dtype=torch.float64)
    if scales:
        layer.scales.data = normal(wiring.n, seed=3).exp()
    return layer


def neighbour(side, n):
    return torch.nn.Linear(*((n, 5) if side == "input" else (5, n)), dtype=torch.float64)


@pytest.mark.parametrize("scales", [False, True])
@pytest.mark.parametrize("name", WIRINGS)
def test_the_inverse_undoes_it(name, scales):
    layer = transform(WIRINGS[name], scales)
    x = normal(7, layer.wiring.n)
    with torch.no_grad():
        assert relative_error(layer.inverse(layer(x)), x) < 20 * EPS
        assert relative_error(layer(layer.inverse(x)), x) < 20 * EPS


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("n", [3584, 13696])
def test_widths_of_language_models_that_are_no_power_of_two(n, dtype):
    """A step of learning on eight rounds, beside autograd over one round after another in float64."""
    layer = Rotate(wiring=Grouped.fixed(n), init="random", seed=0, scales=True)
    layer.scales.data = normal(n, seed=3, dtype=torch.float32).exp()
    x, gradient = (
        normal(3, n, dtype=torch.float32).to(dtype),
        normal(3, n, seed=1, dtype=torch.float32).to(dtype),
    )
    y = layer(x)
    found = torch.autograd.grad(y, (layer.angles, layer.scales), gradient)
    angles, scales = (p.detach().double().requires_grad_() for p in (layer.angles, layer.scales))
    expected, start = x.double() * scales, layer.wiring.n_rotations
    for pairs in reversed(list(layer.wiring.layers())):
        start -= len(pairs)
        i, j = torch.from_numpy(pairs).long().T
        c, s = angles[start : start + len(pairs)].cos(), angles[start : start + len(pairs)].sin()
        both = torch.cat(
            [c * expected[:, i] - s * expected[:, j], s * expected[:, i] + c * expected[:, j]], 1
        )
        expected = expected.index_copy(1, torch.cat([i, j]), both)
    true = torch.autograd.grad(expected, (angles, scales), gradient.double())
    tolerance = 4 * torch.finfo(dtype).eps
    assert relative_error(y, expected) < tolerance
    assert all(relative_error(*pair) < tolerance for pair in zip(found, true, strict=True))
    linear = torch.nn.Linear(n, 3)
    with torch.no_grad():
        before = linear(x.float())
        layer.unfold(linear)
        torch.testing.assert_close(linear(layer(x.float())), before, rtol=1e-4, atol=1e-4)


def test_scales_come_first_and_the_transpose_is_one():
    layer, x, y = transform(Grouped.fixed(37, 8)), normal(3, 37), normal(3, 37, seed=5)
    with torch.no_grad():
        torch.testing.assert_close(layer(x), (layer.rotation @ (x * layer.scales).T).T)
        torch.testing.assert_close((layer(x) * y).sum(-1), (x * layer.T(y)).sum(-1))


@pytest.mark.parametrize("side", ["input", "output"])
@pytest.mark.parametrize("scales", [False, True])
@pytest.mark.parametrize("name", WIRINGS)
def test_fold_and_unfold(name, scales, side):
    layer = transform(WIRINGS[name], scales)
    linear = neighbour(side, layer.wiring.n)
    x, weight, bias = normal(4, linear.in_features), linear.weight.clone(), linear.bias.clone()
    both = torch.nn.Sequential(*((layer, linear) if side == "input" else (linear, layer)))
    with torch.no_grad():
        apart = both(x)
        layer.fold(linear, side)
        assert relative_error(linear(x), apart) < 20 * EPS
        layer.unfold(linear, side)
        assert relative_error(linear.weight, weight) < 20 * EPS
        assert relative_error(linear.bias, bias) < 20 * EPS
        before = linear(x)
        layer.unfold(linear, side)
        assert relative_error(both(x), before) < 20 * EPS


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_fold_rounds_once(dtype):
    layer = Rotate(wiring=Grouped.fixed(256), init="random", seed=0)
    linear = torch.nn.Linear(256, 9, bias=False, dtype=dtype)
    exact = transform(layer.wiring, scales=False)
    exact.angles.data = layer.angles.data.double()
    expected = exact.T(linear.weight.double()).to(dtype)
    layer.fold(linear)
    assert torch.equal(linear.weight, expected)


def test_scales_are_trained_and_kept_in_half_precision():
    layer = Rotate(wiring=Grouped.fixed(64, 16), scales=True)
    assert list(layer.state_dict()) == ["angles", "scales", "_extra_state"]
    x = normal(3, 64, dtype=torch.bfloat16)
    assert layer(x).dtype == layer.inverse(x).dtype == layer.T(x).dtype == torch.bfloat16
    layer(x).float().square().sum().backward()
    assert layer.scales.grad.abs().sum() > 0
    assert "scales=True" in repr(layer)


@pytest.mark.parametrize("way", ["forward", "inverse", "T", "inverse_transpose"])
def test_inputs_that_do_not_fit_are_refused_with_scales_too(way):
    layer = Rotate(wiring=Grouped.fixed(8, 4), scales=True)
    for bad, message in (
        (torch.ones(3, 1), r"x: expected the last axis to be n = 8, got shape \(3, 1\)"),
        (torch.tensor(1.0), r"x: expected the last axis to be n = 8, got shape \(\)"),
        (torch.ones(8, 3), r"the axis before it is 8: try x.mT"),
        (torch.ones(3, 8, dtype=torch.int64), r"x: expected float64, .*, got torch.int64"),
        ([1.0] * 8, "x: expected a torch tensor, got list"),
    ):
        with pytest.raises(ArgumentError, match=message):
            getattr(layer, way)(bad)


def test_what_cannot_be_folded():
    layer, quantised = Rotate(8, scales=True), torch.nn.Linear(8, 8)
    with pytest.raises(
        ArgumentError,
        match=r"linear: expected a torch.nn.Linear, got torch.nn.*conv.Conv1d; try the torch.nn.Linear",
    ):
        layer.fold(torch.nn.Conv1d(8, 8, 1))
    for computed in (
        torch.nn.utils.parametrizations.orthogonal(torch.nn.Linear(8, 8)),
        prune.identity(torch.nn.Linear(8, 8), "weight"),
    ):
        with pytest.raises(
            ArgumentError, match=r"linear: expected a weight that is a parameter.*; try param"
        ):
            layer.fold(computed)
    with pytest.raises(ArgumentError, match="linear: expected 8 output features, got 7; try the other side"):
        layer.fold(torch.nn.Linear(8, 7), "output")
    with pytest.raises(
        ArgumentError, match="side: expected one of 'input', 'output', got 'inputs'; try 'input'"
    ):
        layer.fold(torch.nn.Linear(8, 8), "inputs")
    quantised.weight = torch.nn.Parameter(torch.zeros(8, 8, dtype=torch.uint8), requires_grad=False)
    with pytest.raises(
        ArgumentError, match=r"floating-point numbers, got torch.uint8; try it before the weight"
    ):
        layer.fold(quantised)
    layer.scales.data[3] = 0
    with pytest.raises(ArgumentError, match="scales: expected numbers other than 0, got 1 zeros"):
        layer.unfold(torch.nn.Linear(8, 8))
