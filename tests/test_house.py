"""Rules of the house that can be checked: short files, private names in one place, tests beside what they test."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "swallowtail"
LONGEST = 300  # lines of a file
# A pattern, and the one file that may have it: if the dependency changes, that file does, and its tests fail.
PRIVATE = {
    r"torch\._C|torch\._functorch|forward_ad\._|_python_dispatch": "ops/torch_private.py",
    r"numba\.core": "kernels/cpu/jit.py",
    r"GOMP": "kernels/cpu/openmp.py",
    r"triton\.(runtime|compiler|backends|experimental)": "kernels/gpu/triton_private.py",
}
# Tests of what several modules do together. All others are named after a module: a/test_b.py tests a/b.py or a/b/, and
# a/test_init.py tests a/__init__.py.
CROSSING = {
    "cli/test_full_disk.py",
    "cli/test_interrupts.py",
    "cli/test_mistakes.py",
    "docs/test_examples.py",
    "docs/test_language_models.py",
    "docs/test_pages.py",
    "emulator/test_emulator.py",
    "experiments/test_committed.py",
    "explorer/test_browser.py",
    "kernels/gpu/test_emulated.py",
    "kernels/test_range.py",
    "operators/test_contract.py",
    "ops/test_range.py",
    "ops/test_transforms.py",
    "optim/test_distributed.py",
    "optim/test_optimizers.py",
    "soak/test_trials.py",
    "test_absent.py",
    "test_house.py",
    "test_io_damaged.py",
    "test_public_api.py",
    "test_readme.py",
    "test_wheel.py",
}
# A path of somebody's machine. Written so that this file does not hold one itself.
MACHINE = re.compile(
    "|".join(f"(?<![\\w.~-])/{name}/\\w" for name in ("work", "home", "root", "Users", "tmp"))
)

checkout = pytest.mark.skipif(
    not (ROOT / ".git").exists(), reason="not a checkout: nothing says what is tracked"
)


def tracked() -> list[Path]:
    """The text files that git knows, or would take."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.split("\0")
    paths = [ROOT / name for name in names if name and not name.endswith(".png")]
    return [path for path in paths if path.is_file()]


@checkout
def test_no_file_is_longer_than_can_be_read_in_one_sitting():
    python = [path for path in tracked() if path.suffix == ".py"]
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines()) for path in python
    }
    assert {name for name, length in lengths.items() if length > LONGEST} == set()


@pytest.mark.parametrize("pattern", PRIVATE)
def test_private_names_of_a_dependency_stand_in_one_file(pattern):
    found = [path for path in PACKAGE.rglob("*.py") if re.search(pattern, path.read_text(encoding="utf-8"))]
    assert [str(path.relative_to(PACKAGE)) for path in found] == [PRIVATE[pattern]]


def test_tests_are_where_the_tested_module_is():
    astray = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        name = path.relative_to(ROOT / "tests")
        stem = name.stem.removeprefix("test_")
        module = PACKAGE / name.parent / ("__init__" if stem == "init" else stem)
        if not (module.with_suffix(".py").exists() or (module / "__init__.py").exists()):
            astray.add(str(name))
    assert astray <= CROSSING


@checkout
def test_no_path_of_a_machine_is_in_a_tracked_file():
    found = {}
    for path in tracked():
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            if MACHINE.search(line):
                found[f"{path.relative_to(ROOT)}:{number}"] = line[:120]
    assert found == {}
