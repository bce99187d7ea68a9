"""Saving and loading: everything goes round, nothing is unpickled, nothing is half written."""

import os
import pickle
import signal
import stat
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from bounded import started
from cases import DTYPES, WIRINGS, normal, random_angles

from swallowtail import ArgumentError, Butterfly, Rotation, SymmetricOperator, load, save


def operators(wiring, dtype):
    Q = Rotation(wiring, random_angles(wiring, dtype=dtype))
    return Q, SymmetricOperator(Q, normal(wiring.n, dtype=dtype))


def same(a, b):
    assert type(a) is type(b)
    first, second = (getattr(x, "rotation", x) for x in (a, b))
    assert first.wiring == second.wiring
    assert repr(first.wiring) == repr(second.wiring)
    pairs = [(first.angles, second.angles)]
    if isinstance(a, SymmetricOperator):
        pairs.append((a.eigenvalues, b.eigenvalues))
    for x, y in pairs:
        assert x.dtype == y.dtype
        assert torch.equal(x, y)


@pytest.mark.parametrize("name", WIRINGS)
def test_every_wiring_goes_round(name, tmp_path):
    for operator in operators(WIRINGS[name], torch.float32):
        save(operator, tmp_path / "a.safetensors")
        same(load(tmp_path / "a.safetensors"), operator)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_goes_round(dtype, tmp_path):
    for operator in operators(Butterfly(12), dtype):
        save(operator, str(tmp_path / "a.safetensors"))
        same(load(str(tmp_path / "a.safetensors")), operator)


def test_batches_and_mixed_dtypes_go_round(tmp_path):
    wiring = Butterfly(6)
    Q = Rotation(wiring, random_angles(wiring, 2, 3, dtype=torch.float32))
    H = SymmetricOperator(Q, normal(3, 6, dtype=torch.float64))
    save(H, tmp_path / "a")
    same(load(tmp_path / "a"), H)


def test_unusual_tensors_can_be_saved(tmp_path):
    """Views of one vector, expanded, strided, and parameters with a gradient."""
    wiring = Butterfly(4)
    both = normal(8)
    one = normal(4)
    for angles, d in [
        (both[:4], both[4:]), (one, one), (both[::2], both[1::2]), (one, normal(1).expand(4)),
        (one.clone().requires_grad_(), one.clone().requires_grad_()),
    ]:  # fmt: skip
        H = SymmetricOperator(Rotation(wiring, angles), d)
        save(H, tmp_path / "a")
        same(load(tmp_path / "a"), H)


def test_a_transposed_rotation_goes_round(tmp_path):
    for wiring in (Butterfly(6, 2), WIRINGS["pairs-17"]):
        Q = Rotation(wiring, random_angles(wiring)).T
        save(Q, tmp_path / "a")
        same(load(tmp_path / "a"), Q)


def test_saving_replaces_and_leaves_nothing_else(tmp_path):
    small, large = Rotation.random(4, seed=0), Rotation.random(64, seed=1)
    path = tmp_path / "q.safetensors"
    for operator in (large, small, large):
        save(operator, path)
        same(load(path), operator)
    assert [p.name for p in tmp_path.iterdir()] == ["q.safetensors"]


@pytest.mark.skipif(os.name != "posix", reason="POSIX permissions")
def test_saved_files_have_the_users_usual_permissions(tmp_path):
    (tmp_path / "usual").touch()
    save(Rotation.random(4, seed=0), tmp_path / "q")
    assert stat.S_IMODE((tmp_path / "q").stat().st_mode) == stat.S_IMODE((tmp_path / "usual").stat().st_mode)


def test_a_failed_save_leaves_the_old_file(tmp_path, monkeypatch):
    path, old = tmp_path / "q", Rotation.random(8, seed=0)
    save(old, path)

    def fail(descriptor):
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        save(Rotation.random(8, seed=1), path)
    same(load(path), old)
    assert [p.name for p in tmp_path.iterdir()] == ["q"]


def test_an_operator_outlives_its_file(tmp_path):
    """Its tensors are no views of the file: that may be cut short while they are used."""
    path, Q = tmp_path / "q", Rotation.random(4096, seed=0)
    save(Q, path)
    loaded = load(path)
    os.truncate(path, 0)
    same(loaded, Q)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_a_kill_in_mid_save_leaves_a_whole_file(tmp_path):
    """Another process saves two operators in turn, as fast as it can; killed at any moment, the file is one of them."""
    path = tmp_path / "q"
    program = f"""
import torch
from swallowtail import Rotation, save
first, second = (Rotation.random(2**14, seed=s) for s in (0, 1))
save(first, {str(path)!r})
print("go", flush=True)
while True:
    save(second, {str(path)!r})
    save(first, {str(path)!r})
"""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        "OMP_NUM_THREADS": "1",
    }
    possible = [Rotation.random(2**14, seed=s).angles for s in (0, 1)]
    with started([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"go\n"
        for _ in range(20):  # no reader ever sees a part
            time.sleep(0.003)
            found = load(path).angles
            assert any(torch.equal(found, angles) for angles in possible)
    found = load(path).angles
    assert any(torch.equal(found, angles) for angles in possible)


def test_reading_what_another_process_replaces(tmp_path):
    """Header and numbers are always those of one file."""
    path = tmp_path / "operator"
    program = f"""
import torch
from swallowtail import Butterfly, Rotation, SymmetricOperator, save
for k in range(10**9):
    wiring = Butterfly(4, k % 7 + 1)
    rotation = Rotation(wiring, torch.full((wiring.n_rotations,), float(wiring.depth)))
    save(SymmetricOperator(rotation, torch.full((4,), float(wiring.depth))), {str(path)!r})
"""
    with started(
        [sys.executable, "-c", program], env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    ) as process:
        while not path.exists() and process.poll() is None:
            time.sleep(0.01)
        seen = set()
        for _ in range(2000):
            operator = load(path)
            depth = operator.rotation.wiring.depth
            assert torch.equal(operator.eigenvalues, torch.full((4,), float(depth)))
            assert (operator.rotation.angles == depth).all()
            seen.add(depth)
    assert len(seen) > 1


def test_nothing_is_unpickled(tmp_path, monkeypatch):
    class Trap:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "sprung"),)

    path = tmp_path / "pickle"
    path.write_bytes(pickle.dumps(Trap()))
    with pytest.raises(ValueError, match="truncated or of another kind"):
        load(path)
    torch.save({"angles": Trap()}, path)
    with pytest.raises(ValueError, match="truncated or of another kind"):
        load(path)
    assert not (tmp_path / "sprung").exists()
    save(Rotation.random(4, seed=0), path)
    monkeypatch.setattr(pickle, "load", None)
    monkeypatch.setattr(pickle, "loads", None)
    monkeypatch.setattr(torch, "load", None)
    assert load(path).n == 4


def test_only_operators_are_saved(tmp_path):
    with pytest.raises(
        TypeError, match="expected a Rotation, a SignedRotation, a SymmetricOperator or a HybridOperator"
    ):
        save(np.eye(3), tmp_path / "a")
    assert not (tmp_path / "a").exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_loading_to_a_device_that_is_not_there(tmp_path):
    Q, _ = operators(Butterfly(4), torch.float32)
    save(Q, tmp_path / "q.safetensors")
    for device, got in (
        ("cuda", "cuda"),
        ("nowhere", "'nowhere'"),
        (None, "None"),
        ("meta", "meta"),
        ("xpu", "xpu"),
    ):
        with pytest.raises(ArgumentError, match=f"^device: expected .*, got {got}; try device='cpu'"):
            load(tmp_path / "q.safetensors", device=device)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_dtype_may_come_first(dtype):
    for operator in operators(Butterfly(4), torch.float64):
        assert operator.to(dtype).dtype == operator.to(dtype=dtype).dtype == dtype


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_what_could_not_be_loaded_is_not_saved(number, tmp_path):
    path, Q = tmp_path / "h.safetensors", Rotation.random(4, seed=0)
    save(Q, path)
    with pytest.raises(ArgumentError, match="eigenvalues: expected finite numbers"):
        save(SymmetricOperator(Q, [1.0, 2.0, number, 0.0]), path)
    same(load(path), Q)
