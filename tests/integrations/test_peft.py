"""Givens fine-tuning as a method of peft: trained, saved, merged; several adapters; wrong modules refused."""

import copy
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from cases import normal
from torch import nn

pytestmark = pytest.mark.extras
peft = pytest.importorskip("peft")
from peft.utils.quantization_utils import Bnb4bitBackend, ForwardOnlyQuantizationBackend  # noqa: E402
from transformers.pytorch_utils import Conv1D  # noqa: E402

from swallowtail.errors import ArgumentError  # noqa: E402
from swallowtail.integrations.peft import GivensConfig, GivensLinear  # noqa: E402
from swallowtail.wiring import Butterfly, Grouped  # noqa: E402

EPS = torch.finfo(torch.float64).eps
CONFIGS = {
    "blocks": {"size": 16},
    "scales": {"size": 16, "scales": True},
    "butterfly": {"wiring": "butterfly", "rounds": 2},
}


def base():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(40, 64), nn.Tanh(), nn.Linear(64, 5)).double()


def adapted(model=None, **options):
    config = GivensConfig(**{"target_modules": ["0", "2"], "init_weights": False, **options})
    return peft.get_peft_model(model or base(), config)


def test_it_starts_as_the_identity_and_learns():
    model, x, y = adapted(init_weights=True), normal(50, 40), normal(50, 5, seed=1)
    assert torch.equal(model(x), base()(x))
    trained = [name for name, p in model.named_parameters() if p.requires_grad]
    assert trained == [f"base_model.model.{i}.givens_R.default.angles" for i in (0, 2)]
    optimise = torch.optim.Adam(model.parameters(), lr=0.03)
    losses = []
    for _ in range(30):
        optimise.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimise.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.95 * losses[0]


@pytest.mark.parametrize("name", CONFIGS)
def test_saved_merged_and_unmerged(name, tmp_path):
    model, x = adapted(**CONFIGS[name]), normal(7, 40)
    expected, scales = model(x), model.base_model.model[0].givens_R["default"].scales
    assert scales is None or (scales - 1).norm() > 0.1
    model.save_pretrained(tmp_path)
    again = peft.PeftModel.from_pretrained(base(), tmp_path)
    assert torch.equal(again(x), expected)
    plain = base()[0].weight
    again.merge_adapter(safe_merge=True)
    layer = again.base_model.model[0]
    assert (layer.base_layer.weight - plain).norm() > 0.1
    assert (again(x) - expected).norm() < 50 * EPS * expected.norm()
    again.unmerge_adapter()
    assert (layer.base_layer.weight - plain).norm() < 50 * EPS * plain.norm()
    merged = again.merge_and_unload()
    assert not any(isinstance(module, GivensLinear) for module in merged.modules())
    assert (merged(x) - expected).norm() < 50 * EPS * expected.norm()


def test_a_file_of_another_wiring_is_refused(tmp_path):
    adapted(size=16).save_pretrained(tmp_path)
    settings = (tmp_path / "adapter_config.json").read_text()
    (tmp_path / "adapter_config.json").write_text(settings.replace('"seed": 0', '"seed": 1'))
    with pytest.raises(
        RuntimeError, match=r"expected those of Grouped.* another wiring; try a layer with the n"
    ):
        peft.PeftModel.from_pretrained(base(), tmp_path)


def test_several_adapters_merge_in_the_order_they_act():
    model, x = adapted(size=16), normal(7, 40)
    model.add_adapter("other", GivensConfig(target_modules=["0"], init_weights=False, wiring="butterfly"))
    first = model(x)
    model.set_adapter("other")
    second = model(x)
    assert (second - first).norm() > 0.1
    model.base_model.set_adapter(["default", "other"])
    both = model(x)
    one_by_one = copy.deepcopy(model)
    model.merge_adapter()
    assert (model(x) - both).norm() < 50 * EPS * both.norm()
    one_by_one.merge_adapter(["default"])
    with pytest.warns(UserWarning, match="Already following adapters were merged"):
        one_by_one.merge_adapter(["other"])
    assert (one_by_one(x) - both).norm() < 50 * EPS * both.norm()


def test_adapters_by_row_are_refused():
    model = adapted(size=16)
    model.add_adapter("other", GivensConfig(target_modules=["0"]))
    with pytest.raises(
        ArgumentError, match=r"adapter_names: expected one adapter for all rows, got .*set_adapter"
    ):
        model(normal(2, 40), adapter_names=["default", "other"])


def test_transformers_own_linear():
    model = nn.Sequential(Conv1D(6, 40))
    x, config = normal(3, 40, dtype=torch.float32), GivensConfig(target_modules=["0"], init_weights=False)
    model = peft.get_peft_model(model, config)
    expected = model(x)
    torch.testing.assert_close(model.merge_and_unload()(x), expected)


def test_wirings():
    assert GivensConfig().wiring_for(300) == Grouped.fixed(300, 128, 8)
    assert GivensConfig().wiring_for(64) == Grouped.fixed(64, 64, 8)
    assert GivensConfig(wiring="butterfly", rounds=2).wiring_for(64) == Butterfly(64, 2)
    assert GivensConfig(size=8, rounds=3, pairs="butterfly").wiring_for(64) == Grouped.fixed(
        64, 8, 3, pairs="butterfly"
    )


def test_what_cannot_be_adapted_or_merged():
    with pytest.raises(
        ArgumentError, match=r"target_modules, 0: expected a Linear, got Conv2d; try names of Lin"
    ):
        adapted(nn.Sequential(nn.Conv2d(3, 4, 1)), target_modules=["0"])
    with pytest.raises(
        ArgumentError, match=r"size for 0: expected at most n = 40, got 128; try `size=40`, or leave it out"
    ):
        adapted(size=128)
    for name, bad, expected in (
        ("size", 1, "an integer ≥ 2"),
        ("size", "16", "an integer ≥ 2"),
        ("scales", "yes", "True or False"),
        ("init_weights", "gaussian", "True or False"),
    ):
        with pytest.raises(ArgumentError, match=f"{name}: expected {expected}, got"):
            GivensConfig(**{name: bad})
    with pytest.raises(ArgumentError, match="wiring: expected one of 'grouped', 'butterfly', got 'pairs'"):
        GivensConfig(wiring="pairs")
    with pytest.raises(ArgumentError, match="layers_pattern: expected layers_to_transform beside it"):
        GivensConfig(layers_pattern="h")
    with pytest.raises(ArgumentError, match="seed: expected an integer ≥ 0, got -1"):
        GivensConfig(seed=-1)
    with pytest.raises(ArgumentError, match="size: expected none for a butterfly, got 8; try wiring"):
        GivensConfig(wiring="butterfly", size=8)
    model = adapted()
    layer = model.base_model.model[0]
    layer.base_layer.weight = nn.Parameter(torch.zeros(64, 40, dtype=torch.uint8), requires_grad=False)
    with pytest.raises(
        ArgumentError, match=r"merge: .* floating-point numbers, got torch.uint8; try keeping"
    ):
        model.merge_adapter()
    layer.quantization_backend = ForwardOnlyQuantizationBackend("gptq")
    with pytest.raises(
        ArgumentError, match="merge: expected a base weight that can be written without loss, got gptq codes"
    ):
        model.merge_adapter()
    layer.quantization_backend = Bnb4bitBackend()
    with pytest.raises(
        ArgumentError, match="written without loss, got bnb 4bit codes; try keeping the adapter"
    ):
        model.merge_adapter()


def test_layers_can_be_chosen():
    def blocks():
        return nn.ModuleDict({"h": nn.ModuleList(nn.ModuleDict({"f": nn.Linear(8, 8)}) for _ in range(2))})

    config = GivensConfig(target_modules=["f"], layers_to_transform=0, layers_pattern="h")
    model = peft.get_peft_model(blocks(), config)
    assert [name for name, part in model.named_modules() if isinstance(part, GivensLinear)] == [
        "base_model.model.h.0.f"
    ]


def test_linears_that_are_not_called_are_refused():
    attention, coder = nn.MultiheadAttention(8, 2), nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    computed = nn.utils.parametrizations.weight_norm(nn.Linear(8, 8))
    for module, name, message in (
        (attention, "0.out_proj", "MultiheadAttention never calls; leave it out"),
        (coder, "0.linear1", "TransformerEncoderLayer does not call in evaluation; try `torch.backends"),
        (computed, "0", "a parametrised one; try torch.nn.utils.parametrize.remove_param"),
    ):
        with pytest.raises(
            ArgumentError, match=f"target_modules, {name}: expected a Linear .* got .*{message}"
        ):
            adapted(nn.Sequential(module), target_modules=[name])


def test_a_layer_of_an_encoder_is_adapted_once_its_shortcut_is_off():
    coder, x = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True).eval(), normal(2, 3, 8).float()
    expected = coder(x)
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        model = adapted(nn.Sequential(coder), target_modules=["0.linear1"]).eval()
        with torch.no_grad():
            assert (model(x) - expected).norm() > 0.01 * expected.norm()
    finally:
        torch.backends.mha.set_fastpath_enabled(True)


def test_an_installation_that_is_broken_says_so_itself(tmp_path):
    (tmp_path / "peft.py").write_text("raise ImportError('torchvision is of another version')\n")
    env = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2] / "src")])
    }
    command = [sys.executable, "-c", "import swallowtail.integrations.peft"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=env, check=False)
    assert done.stderr.strip().endswith("ImportError: torchvision is of another version")


def test_safe_merge_leaves_the_weight_alone():
    model = adapted()
    layer = model.base_model.model[0]
    before = layer.base_layer.weight.clone()
    layer.givens_R["default"].angles.data.fill_(torch.nan)
    with pytest.raises(ValueError, match="adapters default: expected finite merged weights"):
        model.merge_adapter(safe_merge=True)
    assert torch.equal(layer.base_layer.weight, before)
