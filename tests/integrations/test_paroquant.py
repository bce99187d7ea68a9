"""ParoQuant's checkpoints, against its definition written out as loops."""

import json
import math

import numpy as np
import pytest
import torch
from cases import normal, relative_error
from safetensors.torch import load_file, save_file

from swallowtail import Butterfly, Grouped
from swallowtail.errors import ArgumentError
from swallowtail.integrations import awq, paroquant
from swallowtail.nn import Rotate


def by_definition(x, pairs, theta, scales, size):
    """What ParoQuant's kernel does to one vector, number by number."""
    y = [float(a) * float(b) for a, b in zip(x, scales.reshape(-1), strict=True)]
    for places, angles in zip(pairs.tolist(), theta.tolist(), strict=True):
        for k, angle in enumerate(angles):
            block = 2 * k // size * size
            i, j = block + places[2 * k], block + places[2 * k + 1]
            c, s = math.cos(angle), math.sin(angle)
            y[i], y[j] = y[i] * c + y[j] * s, y[i] * -s + y[j] * c
    return torch.tensor(y, dtype=torch.float64)


def tensors_of(n, size, rounds, seed=0):
    generator = torch.Generator().manual_seed(seed)
    blocks = [[torch.randperm(size, generator=generator) for _ in range(n // size)] for _ in range(rounds)]
    return {
        "theta": normal(rounds, n // 2, seed=seed).half(),
        "pairs": torch.stack([torch.cat(row) for row in blocks]).short(),
        "channel_scales": normal(1, n, seed=seed + 1).exp().half(),
    }


@pytest.mark.parametrize(
    ("n", "size", "rounds"), [(256, 128, 8), (192, 64, 1), (24, 6, 3), (3584, 128, 2), (13696, 128, 2)]
)
def test_the_transform_is_theirs_and_goes_both_ways(n, size, rounds):
    tensors = tensors_of(n, size, rounds)
    layer, x = paroquant.from_tensors(tensors, size), normal(n)
    expected = by_definition(x, tensors["pairs"], tensors["theta"].double(), tensors["channel_scales"], size)
    with torch.no_grad():
        assert relative_error(layer.double()(x), expected) < 1e-14
    again = paroquant.to_tensors(layer)
    assert all(torch.equal(again[name], tensors[name]) for name in tensors)
    assert {name: t.dtype for name, t in again.items()} == {name: t.dtype for name, t in tensors.items()}


def test_a_layer_of_ours_goes_both_ways():
    wiring = Grouped.fixed(32, 8, pairs=[[(0, 5), (9, 8)], [], [(31, 24), (1, 2)]])
    layer = Rotate(wiring=wiring, init="random", seed=0)
    layer.angles.data = layer.angles.data.half().float()
    tensors, x = paroquant.to_tensors(layer), normal(32)
    assert torch.equal(tensors["channel_scales"], torch.ones(1, 32).half())
    expected = by_definition(x, tensors["pairs"], tensors["theta"].double(), torch.ones(32), 8)
    with torch.no_grad():
        assert relative_error(layer.double()(x), expected) < 1e-14
        assert relative_error(paroquant.from_tensors(tensors, 8).double()(x), expected) < 1e-14


def test_checkpoints_go_both_ways(tmp_path):
    theirs = {f"{name}.{part}": t for name in ("a.q", "b") for part, t in tensors_of(256, 128, 8).items()}
    weight = normal(16, 256, dtype=torch.float32)
    theirs |= {**paroquant.quantise(weight, "b"), "embedding": normal(3, 4)}
    save_file(theirs, tmp_path / "theirs.safetensors")
    checkpoint = paroquant.load(tmp_path / "theirs.safetensors")
    assert sorted(checkpoint.rotations) == ["a.q", "b"]
    paroquant.save(tmp_path / "ours.safetensors", checkpoint)
    ours = load_file(tmp_path / "ours.safetensors")
    assert sorted(ours) == sorted(theirs)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    error = (paroquant.dequantise(checkpoint.tensors, "b") - weight).reshape(16, 2, 128)
    steps = checkpoint.tensors["b.scales"].float().T
    assert bool((error.abs().amax(-1) < 0.75 * steps).all())


def test_a_checkpoint_of_several_files_is_read_from_its_folder(tmp_path):
    dense, shared = tensors_of(24, 6, 3), tensors_of(12, 6, 2, seed=5)
    whole = {f"q.{part}": t for part, t in dense.items()}
    whole |= {f"experts.gate_up_weight_{part}": t for part, t in shared.items()}
    first = {"q.theta": whole.pop("q.theta"), "embedding": normal(3, 4)}
    save_file(first, tmp_path / "model-00001-of-00002.safetensors")
    save_file(whole, tmp_path / "model-00002-of-00002.safetensors")
    with pytest.raises(ArgumentError, match=r"q.pairs: expected a tensor of that name.*; try the folder"):
        paroquant.load(tmp_path / "model-00001-of-00002.safetensors", 6)
    with pytest.raises(ArgumentError, match=r"multiple of 128.*; try the group_size of its config.json"):
        paroquant.load(tmp_path)
    settings = {"quantization_config": {"quant_method": "paroquant", "group_size": 6}}
    (tmp_path / "config.json").write_text(json.dumps(settings))
    checkpoint = paroquant.load(tmp_path)
    assert sorted(checkpoint.rotations) == ["experts.gate_up_weight", "q"]
    assert list(checkpoint.tensors) == ["embedding"]
    paroquant.save(tmp_path / "ours.safetensors", checkpoint)
    ours = load_file(tmp_path / "ours.safetensors")
    assert sorted(ours) == sorted({**first, **whole})
    assert all(torch.equal(ours[name], t) for name, t in {**first, **whole}.items())
    (tmp_path / "none").mkdir()
    with pytest.raises(ArgumentError, match=r"expected a folder with safetensors files, got none of them"):
        paroquant.load(tmp_path / "none")


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        ("[" * 100_000, "config.json: expected JSON"),
        ("{", "config.json: expected JSON"),
        (
            '{"quantization_config": {"group_size": -1}}',
            "config.json, group_size: expected an integer ≥ 2, got -1",
        ),
        ('{"quantization_config": {"group_size": "six"}}', "config.json, group_size: expected an integer"),
    ],
)
def test_a_config_that_says_nothing_usable_is_named(tmp_path, contents, message):
    save_file({f"q.{part}": t for part, t in tensors_of(24, 6, 3).items()}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(contents)
    with pytest.raises(ArgumentError, match=message):
        paroquant.load(tmp_path)
    assert paroquant.load(tmp_path, 6).rotations


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_other_precisions_are_read(dtype):
    tensors = tensors_of(24, 6, 3)
    other = {name: t.to(dtype) if t.is_floating_point() else t for name, t in tensors.items()}
    layer = paroquant.from_tensors(other, 6)
    again = paroquant.from_tensors(paroquant.to_tensors(layer.to(dtype)), 6)
    assert torch.equal(again.angles, layer.angles.float())
    assert torch.equal(again.scales, layer.scales.float())


def test_weights_are_packed_as_awq_packs_them():
    codes = torch.arange(16).repeat(2, 1)
    packed = awq._pack(codes)
    assert [f"{int(word) & 0xFFFFFFFF:08x}" for word in packed[0]] == ["75316420", "fdb9eca8"]
    assert torch.equal(awq._unpack(packed), codes)


@pytest.mark.parametrize("name", ["theta", "channel_scales"])
def test_numbers_that_are_not_finite_are_refused(name, tmp_path):
    tensors = tensors_of(24, 6, 3)
    tensors[name][0, 2] = torch.inf
    save_file({f"q.{part}": t for part, t in tensors.items()}, tmp_path / "bad.safetensors")
    with pytest.raises(ArgumentError, match=rf"bad.safetensors, q.{name}: expected finite numbers"):
        paroquant.load(tmp_path / "bad.safetensors", 6)


def test_other_layouts_are_refused(tmp_path):
    good = tensors_of(256, 128, 2)
    with pytest.raises(
        ArgumentError, match=r"pairs: expected each of 0 … 63 once per block.*try the group_size"
    ):
        paroquant.from_tensors(good, 64)
    with pytest.raises(
        ArgumentError, match=r"pairs: expected int16 places .*, got torch.int64; try .to\(torch.int16\)"
    ):
        paroquant.from_tensors({**good, "pairs": good["pairs"].long()})
    for pairs, size in ((good["pairs"][:, :0], 128), (good["pairs"][0], 128), (good["pairs"], 512)):
        with pytest.raises(ArgumentError, match=r"pairs: expected shape \(rounds, a mult.*; try the group_s"):
            paroquant.from_tensors({**good, "pairs": pairs}, size)
    twice = good["pairs"].clone()
    twice[1, 128:] = twice[0, :128].clamp(max=126)
    with pytest.raises(ArgumentError, match=r"got 127 numbers from 0 to 126 in block 1 of round 1; try the"):
        paroquant.from_tensors({**good, "pairs": twice})
    with pytest.raises(ArgumentError, match=r"tensors: expected a Mapping, got NoneType; try the dict"):
        paroquant.from_tensors(None)
    with pytest.raises(ArgumentError, match=r"theta: expected a Tensor, got ndarray; try torch.as_tensor"):
        paroquant.from_tensors({name: np.asarray(t) for name, t in good.items()})
    with pytest.raises(
        ArgumentError, match=r"theta: expected a tensor.*only q.theta, .*; try the names theta"
    ):
        paroquant.from_tensors({f"q.{name}": t for name, t in good.items()})
    for bad in ({"q": Rotate(8)}, None):
        with pytest.raises(
            ArgumentError, match=r"checkpoint: expected a Checkpoint, .*; try paroquant.Check"
        ):
            paroquant.save(tmp_path / "new.safetensors", bad)
    with pytest.raises(ArgumentError, match=r"q.w: expected a Tensor, got int"):
        paroquant.save(tmp_path / "new.safetensors", paroquant.Checkpoint({}, {"q.w": 3}))
    with pytest.raises(
        ArgumentError, match=r"theta: expected real numbers of shape \(2, 128\).*; try the pairs"
    ):
        paroquant.from_tensors({**good, "theta": good["theta"][:1]})
    with pytest.raises(ArgumentError, match="pairs: expected a tensor of that name, got only theta"):
        paroquant.from_tensors({"theta": good["theta"]})
    with pytest.raises(
        ArgumentError, match=r"channel_scales: expected 256 real numbers.*; try the scales of"
    ):
        paroquant.from_tensors({**good, "channel_scales": torch.ones(3)})
    save_file({"rotation.angles": torch.zeros(3)}, tmp_path / "other.safetensors")
    with pytest.raises(
        ArgumentError, match="expected a checkpoint of ParoQuant, got 1 tensors, none named theta"
    ):
        paroquant.load(tmp_path / "other.safetensors")
    save_file({f"q.{name}": t for name, t in good.items()}, tmp_path / "good.safetensors")
    with pytest.raises(ArgumentError, match=r"good.safetensors, q.pairs: expected each of 0 … 31"):
        paroquant.load(tmp_path / "good.safetensors", 32)
    for wiring in (Butterfly(256), Grouped.fixed(250, 100), Grouped.fixed(9, 3)):
        with pytest.raises(
            ArgumentError, match=r"wiring: expected blocks of neighbouring .* try Grouped.fixed"
        ):
            paroquant.to_tensors(Rotate(wiring=wiring))
    with pytest.raises(
        ArgumentError, match=r"name: expected a module with qweight, qzeros and scales, got no q.q"
    ):
        paroquant.dequantise({}, "q")
    packed = paroquant.quantise(normal(8, 256), "q")
    with pytest.raises(ArgumentError, match=r"got no k.qweight; try 'q'"):
        paroquant.dequantise(packed, "k")
    of_gptq = {"q.qweight": torch.zeros(32, 16), "q.qzeros": torch.zeros(2, 2), "q.scales": torch.ones(2, 16)}
    with pytest.raises(
        ArgumentError, match=r"q: expected qweight .*; try a checkpoint packed as AWQ does it"
    ):
        paroquant.dequantise(of_gptq, "q")
    for part, other in (
        ("qzeros", packed["q.qzeros"][:1]),
        ("scales", packed["q.scales"][:0]),
        ("scales", packed["q.scales"][0]),
        ("qweight", packed["q.qweight"].float()),
    ):
        with pytest.raises(ArgumentError, match=r"q: expected qweight"):
            paroquant.dequantise({**packed, f"q.{part}": other}, "q")
    with pytest.raises(
        ArgumentError, match=r"weight: expected a multiple of 8 rows, of 128 columns, got shape"
    ):
        paroquant.quantise(torch.zeros(7, 128), "q")


@pytest.mark.parametrize("shift", [-3.0, 0.0, 3.0, 1000.0])
def test_blocks_on_one_side_of_0_are_rounded_as_finely_as_the_format_allows(shift):
    weight = 0.1 * normal(8, 256, dtype=torch.float32) + shift
    parts = paroquant.quantise(weight, "q")
    error = (paroquant.dequantise(parts, "q") - weight).reshape(8, 2, 128).abs().amax(-1)
    reach = weight.reshape(8, 2, 128)
    span = reach.amax(-1).clamp(min=0) - reach.amin(-1).clamp(max=0)
    assert bool((error <= 0.76 * span / 15).all())


def test_weights_that_cannot_be_quantised_are_refused():
    weight = normal(8, 128, dtype=torch.float32)
    assert paroquant.quantise(weight.numpy(), "q").keys() == paroquant.quantise(weight, "q").keys()
    for bad, arguments, message in (
        (weight * 1e7, {}, r"weight: expected blocks whose numbers lie within 982560"),
        (weight.double() * 1e200, {}, r"weight: expected blocks whose numbers lie within 982560"),
        (weight * torch.nan, {}, "weight: expected finite numbers"),
        (weight, {"size": 0}, "size: expected an integer ≥ 1, got 0"),
        (weight[0], {}, r"weight: expected a multiple of 8 rows, of 128 columns, got shape \(128,\)"),
        ("weight", {}, "weight: expected a tensor or array of real numbers"),
    ):
        with pytest.raises(ArgumentError, match=message):
            paroquant.quantise(bad, "q", **arguments)


def test_angles_lose_whole_turns_before_they_are_rounded():
    layer = Rotate(wiring=Grouped.fixed(8, 4), dtype=torch.float64)
    angles = torch.linspace(-3, 3, len(layer.angles), dtype=torch.float64)
    layer.angles.data = angles + 100 * math.pi
    found = paroquant.from_tensors(paroquant.to_tensors(layer), 4).angles.detach()
    assert float((found.double() - angles).abs().max()) < 2e-3


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (
            "scales",
            1e5,
            "scales: expected 0, or sizes of 3e-6 to 65504.* got 1e[+]05; try scales nearer to 1",
        ),
        ("scales", 1e-8, "scales: expected 0, or sizes of 3e-6 to 65504.* got 1e-08"),
        ("scales", math.nan, "scales: expected finite numbers"),
        ("angles", math.inf, "angles: expected finite numbers"),
    ],
)
def test_what_could_not_be_read_again_is_not_written(name, value, message, tmp_path):
    layer = Rotate(wiring=Grouped.fixed(8, 4), scales=True)
    getattr(layer, name).data[1] = value
    with pytest.raises(ArgumentError, match=f"^a.q.{message}"):
        paroquant.save(tmp_path / "new.safetensors", paroquant.Checkpoint({"a.q": layer}, {}))
    assert not (tmp_path / "new.safetensors").exists()
