"""The compilers and their disk cache; and that what we use of Numba's internals still means what we think."""

import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
from cpu_checks import run_program
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

import swallowtail
from swallowtail.kernels.cpu import jit
from swallowtail.kernels.cpu import pairs as cpu_pairs

# Multiplies three of four ones by two. `multiply` is in elementwise.py; it inlines `as_row` from codegen/shapes.py.
PROGRAM = """
import numpy as np
from swallowtail.kernels.cpu import elementwise
x = np.ones(4, np.float32)
elementwise.multiply(x.ctypes.data, 3, 2.0, x)
stats = elementwise.multiply.stats
print(x.astype(int).tolist(), sum(stats.cache_hits.values()), sum(stats.cache_misses.values()))
"""
MULTIPLIED, COMPILED, FOUND = "[2, 2, 2, 1]", "0 1", "1 0"  # what it prints, the cache's hits and misses


@pytest.fixture
def package(tmp_path):
    """A copy of the package that a test may change, without compiled code."""
    source = Path(swallowtail.__file__).parent
    shutil.copytree(source, tmp_path / "swallowtail", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / "swallowtail"


def run_in(package, program=PROGRAM, **changes):
    path = os.pathsep.join(
        [str(package.parent), *(p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p)]
    )
    changes = {"NUMBA_CACHE_DIR": "", "PYTHONPATH": path, **changes}
    done = run_program(program, warnings="default", **changes)
    assert done.returncode == 0, done.stderr
    return done


def cache_files(package):
    return sorted(p for p in (package / "kernels/cpu/__pycache__").iterdir() if p.suffix in (".nbi", ".nbc"))


def test_a_change_of_another_module_is_noticed(package):
    assert run_in(package).stdout.strip() == f"{MULTIPLIED} {COMPILED}"
    assert run_in(package).stdout.strip() == f"{MULTIPLIED} {FOUND}"
    before = cache_files(package)
    shapes = package / "kernels/cpu/codegen/shapes.py"
    source = shapes.read_text()
    assert "_pointer(address, like)" in source
    shapes.write_text(source.replace("_pointer(address, like)", "_pointer(address + 4, like)"))
    assert run_in(package).stdout.strip() == f"[1, 2, 2, 2] {COMPILED}"
    assert not set(before) & set(cache_files(package)), "compiled code of the old sources is left"


@pytest.mark.parametrize("damage", ["empty", "truncated", "garbage", "one bit"])
def test_damaged_files_are_compiled_again(damage, monkeypatch, tmp_path):
    monkeypatch.setattr(jit.config, "CACHE_DIR", str(tmp_path))

    def found():
        compiled = jit.njit(cache=True)(_twice)
        assert compiled(3) == 6
        return sum(compiled.stats.cache_hits.values())

    assert [found(), found()] == [0, 1]
    for kind in (".nbi", ".nbc"):
        for path in tmp_path.rglob(f"*{kind}"):
            contents = path.read_bytes()
            middle = len(contents) // 2
            path.write_bytes({
                "empty": b"",
                "truncated": contents[:middle],
                "garbage": np.random.default_rng(0).bytes(len(contents)),
                "one bit": contents[:middle] + bytes([contents[middle] ^ 1]) + contents[middle + 1 :],
            }[damage])  # fmt: skip
        assert [found(), found()] == [0, 1], f"{kind} was damaged"


def test_nowhere_to_write_is_said_once(package):
    """Files in place of the folders: permissions would not stop a superuser."""
    for folder in (package / "kernels/cpu", package / "kernels/cpu/codegen"):
        (folder / "__pycache__").write_text("")
    done = run_in(package, HOME=os.devnull, XDG_CACHE_HOME=os.devnull, PYTHONDONTWRITEBYTECODE="1")
    assert done.stdout.strip() == f"{MULTIPLIED} {COMPILED}"
    assert done.stderr.count("cannot keep compiled CPU kernels on disk") == 1


def test_a_full_disk_is_said_and_the_result_is_there(monkeypatch, tmp_path):
    monkeypatch.setattr(jit.config, "CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(jit, "_warn_uncached", jit._warn_uncached.__wrapped__)
    compiled = jit.njit(cache=True)(_twice)
    assert compiled._cache.works
    monkeypatch.setattr(compiled._cache._cache_file, "_write", _no_space)
    with pytest.warns(RuntimeWarning, match="cannot keep"):
        assert compiled(3) == 6


def _twice(x):
    return 2 * x


def _no_space(*_):
    raise OSError(28, "No space left on device")


def test_without_a_compiler_the_reference_does_the_work():
    program = """
import torch
from swallowtail import Rotation
from swallowtail.kernels import available_backends, select_backend
Q, x = Rotation.random(16, seed=0), torch.eye(16)
print(available_backends()["cpu"], select_backend(x), torch.allclose(Q(x) @ Q(x).T, x, atol=1e-6))
"""
    done = run_program(program, warnings="default", NUMBA_DISABLE_JIT="1")
    assert done.stdout.strip() == "NUMBA_DISABLE_JIT is set reference True", done.stderr
    assert done.stderr.count("the reference back end does the CPU's work") == 1


def test_compilation_is_announced_once_and_kept(tmp_path):
    program = """
import torch
from swallowtail import Pairs, Rotation
from swallowtail.kernels.cpu import backend, launch, threads
for dtype in (torch.float32, torch.float64):
    backend.prepare(Pairs(2, [[(0, 1)]]), torch.ones(1, 1, dtype=dtype))
Q, x = Rotation.random(64, seed=0), torch.ones(8, 64)
Q(x)
threads.WORTH_A_THREAD = launch.WORTH_A_THREAD = 1
torch.set_num_threads(2)
Q(x)
"""
    said = [run_program(program, NUMBA_CACHE_DIR=str(tmp_path)) for _ in range(2)]
    assert [done.returncode for done in said] == [0, 0], said[0].stderr
    assert said[0].stderr.count("compiling CPU kernels") == 1
    assert "kept on disk" in said[0].stderr
    assert said[1].stderr == ""


# Several processes that fill the cache at once


def test_every_file_of_code_has_a_name_of_its_own():
    assert cpu_pairs.pack._cache.works
    files = cpu_pairs.pack._cache._cache_file
    assert files._data_name(1) != files._data_name(1)


def test_two_processes_that_compile_at_once_leave_a_consistent_cache(monkeypatch, tmp_path):
    """Both read an empty index, then one writes its index before, and its code after, the other writes both."""
    assert cpu_pairs.pack._cache.works
    files = cpu_pairs.pack._cache._cache_file
    monkeypatch.setattr(files, "_cache_path", str(tmp_path))
    monkeypatch.setattr(files, "_index_path", str(tmp_path / "index"))
    save_data = files._save_data

    def interrupted(name, data):
        if data == "slow":  # the other process gets in between
            with monkeypatch.context() as other:
                other.setattr(files, "_load_index", dict)  # it had read the index when there was none
                files.save("other types", "quick")
        save_data(name, data)

    monkeypatch.setattr(files, "_save_data", interrupted)
    files.save("types", "slow")
    index = files._load_index()
    stored = {key: files._load_data(name) for key, name in index.items()}
    assert stored == {"other types": "quick"}
    assert (files.load("other types"), files.load("types")) == ("quick", None)


# Numba's internals


def test_numba_asks_our_cache(tmp_path, monkeypatch):
    """A dispatcher and a C function load from, and save to, the object in ``_cache``."""
    monkeypatch.setattr(jit.config, "CACHE_DIR", str(tmp_path))
    for compile_it, hits in (
        (lambda: jit.njit(cache=True)(_twice), lambda f: (f(2), sum(f.stats.cache_hits.values()))[1]),
        (lambda: jit.cfunc(types.int64(types.int64), _twice), lambda f: f.cache_hits),
    ):
        assert [hits(compile_it()) for _ in range(2)] == [0, 1]


def test_numba_keeps_data_by_key_in_files_of_these_methods(tmp_path):
    files = jit._Files(str(tmp_path), "function", "stamp")
    files.save("key", {"code": b"1"})
    assert files.load("key") == {"code": b"1"}
    assert files.load("other") is None
    names = sorted(path.name for path in tmp_path.iterdir())
    assert [name.split(".")[:2] for name in names] == [["function", "stamp"]] * 2
    (tmp_path / next(name for name in names if name.endswith("nbc"))).unlink()
    assert files.load("key") is None
    assert jit._Files(str(tmp_path), "function", "other")._load_index() == {}
    contents = (tmp_path / files._index_name).read_bytes()  # not Numba's own format: a digest, and the rest
    assert jit.DIGEST(contents[32:]).digest() == contents[:32]


def test_numba_tells_when_it_compiles(capsys):
    announcer = jit._Announcer()
    seen = []
    announcer.on_start = lambda event: seen.append(event.data["dispatcher"])
    announcer.on_end = lambda event: None
    jit.event.register("numba:compile", announcer)
    try:
        compiled = jit.njit()(lambda x: x + 1)
        assert compiled(1) == 2
        assert compiled in seen
    finally:
        jit.event.unregister("numba:compile", announcer)


def test_the_time_of_compiling_is_counted_once():
    compiled, before = jit.njit()(lambda x: x + 2), jit.seconds_compiling()
    assert compiled(1) == 3
    after = jit.seconds_compiling()
    assert after > before
    assert compiled(1) == 3
    assert jit.seconds_compiling() == after


def test_only_compiled_code_may_call_an_inner_function():
    twice = jit.njit(inner=True)(_twice)
    assert jit.njit()(lambda x: twice(twice(x)))(3) == 12
    with pytest.raises(TypeError, match="from compiled code only"):
        twice(3)


def test_helpers_that_emit_loops_and_variables():
    @intrinsic
    def sums(typingctx, count):
        def generate(context, builder, signature, values):
            integer = ir.IntType(64)
            total = jit.alloca_once_value(builder, integer(0))
            with jit.for_range(builder, values[0]) as loop:  # 0 … count − 1
                builder.store(builder.add(builder.load(total), loop.index), total)
            with jit.for_range_slice(builder, integer(100), integer(400), integer(100)) as (index, _):
                builder.store(builder.add(builder.load(total), index), total)
            return builder.load(total)

        return types.int64(types.int64), generate

    assert jit.njit()(lambda count: sums(count))(5) == 0 + 1 + 2 + 3 + 4 + 100 + 200 + 300


@pytest.mark.skipif(os.name != "posix", reason="needs signals")
def test_ctrl_c_waits_until_a_kernel_is_compiled(monkeypatch):
    """An interrupt inside Numba's compiler can leave its lock locked for ever."""
    events = []

    @jit.njit()
    def double(x):
        return 2 * x

    inner = double.compile

    def interrupted(signature):
        signal.raise_signal(signal.SIGINT)
        events.append("compiled")
        return inner(signature)

    monkeypatch.setattr(double, "compile", interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            double(3)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert events == ["compiled"]
    assert double(3) == 6
