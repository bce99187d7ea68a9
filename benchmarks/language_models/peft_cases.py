"""peft's own tests of custom models, run with our method. A plugin of pytest, for a checkout of peft's sources:

python -m pytest -p benchmarks.language_models.peft_cases path/to/peft/tests/test_custom_models.py -k Givens

The tests are parametrised by lists of cases in their module. The plugin puts ours in these lists.
"""

from __future__ import annotations

from typing import Any

import pytest

from swallowtail.integrations.peft import GivensConfig

BLOCKS = {"size": 5, "rounds": 3}
CASES: list[tuple[str, str, type, dict[str, Any]]] = [
    ("MLP, one", "MLP", GivensConfig, {"target_modules": "lin0"}),
    ("MLP, list", "MLP", GivensConfig, {"target_modules": ["lin0"], **BLOCKS}),
    ("MLP, odd size", "MLP", GivensConfig, {"target_modules": ["lin1"], "size": 7, "pairs": "butterfly"}),
    ("MLP, both", "MLP", GivensConfig, {"target_modules": ["lin0", "lin1"], "rounds": 1}),
    (
        "MLP, saved",
        "MLP",
        GivensConfig,
        {"target_modules": ["lin0"], "modules_to_save": ["lin1"], **BLOCKS},
    ),
    ("MLP, butterfly", "MLP", GivensConfig, {"target_modules": ["lin0", "lin1"], "wiring": "butterfly"}),
    ("MLP, scales", "MLP", GivensConfig, {"target_modules": ["lin0", "lin1"], "scales": True}),
    ("Embedding and Conv1D", "EmbConv1D", GivensConfig, {"target_modules": ["conv1d"]}),
]
TWO: list[tuple[str, str, type, dict[str, Any], dict[str, Any]]] = [
    (
        "Givens, same modules",
        "givens",
        GivensConfig,
        {"target_modules": ["lin0"], "init_weights": False},
        {"target_modules": ["lin0"], "init_weights": False},
    ),
    (
        "Givens, different modules",
        "givens",
        GivensConfig,
        {"target_modules": ["lin0"], "init_weights": False},
        {"target_modules": ["lin1"], "init_weights": False},
    ),
]


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Replace the contents of the lists before pytest reads them."""
    module = metafunc.module
    module.TEST_CASES[:] = CASES
    module.MULTIPLE_ACTIVE_ADAPTERS_TEST_CASES[:] = TWO
    module.ALL_PEFT_CONFIG_CLASSES[:] = [GivensConfig]
    if hasattr(module, "PREFIXES"):
        module.PREFIXES[GivensConfig] = "givens_"
