"""Every write: all or nothing, same permissions, through links, no leftovers."""

import os
import signal
import stat
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from bounded import finish

from swallowtail import atomic

posix = pytest.mark.skipif(os.name != "posix", reason="POSIX permissions, links and limits")


def put(path, content=b"new"):
    with atomic.replacing(path) as file:
        file.write(content)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_the_new_contents_appear_at_the_end_of_the_block(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    with atomic.replacing(path) as file:
        file.write(b"ne")
        file.flush()
        assert path.read_bytes() == b"old"
        file.write(b"w")
    assert path.read_bytes() == b"new"
    assert names(tmp_path) == ["a"]


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt, MemoryError])
def test_what_raises_leaves_the_old_file_and_nothing_else(error, tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"old")

    def fail():
        with atomic.replacing(path) as file:
            file.write(b"half")
            raise error

    with pytest.raises(error):
        fail()
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["a"]


@posix
@pytest.mark.parametrize("bits", [0o600, 0o640, 0o444 | 0o200, 0o755])
def test_permissions_stay_as_they_were(bits, tmp_path):
    path = tmp_path / "a"
    path.touch()
    path.chmod(bits)
    with atomic.replacing(path) as file:
        file.write(b"secret")
        file.flush()
        temporary = next(p for p in tmp_path.iterdir() if p.name.startswith(atomic.PREFIX))
        assert mode(temporary) & 0o077 == 0  # nobody else may look meanwhile
    assert (mode(path), path.read_bytes()) == (bits, b"secret")


@posix
def test_a_new_file_has_the_usual_permissions(tmp_path):
    (tmp_path / "usual").touch()
    put(tmp_path / "a")
    assert mode(tmp_path / "a") == mode(tmp_path / "usual")


@posix
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anything")
def test_a_read_only_file_is_not_replaced(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    path.chmod(0o400)
    with pytest.raises(PermissionError, match="read-only"):
        put(path)
    assert path.read_bytes() == b"old"


@posix
@pytest.mark.parametrize("exists", [True, False])
def test_links_stay_and_their_targets_are_written(exists, tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to("there/a")
    if exists:
        (tmp_path / "there" / "a").write_bytes(b"old")
    put(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "there" / "a").read_bytes() == b"new"
    assert names(tmp_path / "there") == ["a"]


@posix
def test_devices_are_written_to_and_stay(tmp_path):
    for device, fails in (("/dev/null", False), ("/dev/full", True)):
        link = tmp_path / Path(device).name
        link.symlink_to(device)
        if fails:
            with pytest.raises(OSError, match="No space left"):
                put(link)
        else:
            put(link)
        assert stat.S_ISCHR(os.stat(device).st_mode)


def test_names_may_be_as_long_as_the_folder_takes(tmp_path):
    path = tmp_path / ("n" * 255)
    put(path)
    assert path.read_bytes() == b"new"


def test_folders_and_missing_folders_are_errors(tmp_path):
    with pytest.raises(OSError, match=r"[Dd]irectory"):
        put(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"No such folder: '.*none'$"):
        put(tmp_path / "none" / "a")


@posix
def test_temporaries_of_killed_writers_are_swept_and_those_of_the_living_are_not(tmp_path):
    program = f"""
import os, signal
from swallowtail import atomic
with atomic.replacing({str(tmp_path / "killed")!r}) as file:
    file.write(b"half")
    os.kill(os.getpid(), signal.SIGKILL)
"""
    folder = str(Path(atomic.__file__).parent)  # the module alone: importing torch would take seconds
    loader = f"""
import sys, types
sys.modules["swallowtail"] = package = types.ModuleType("swallowtail")
package.__path__ = [{folder!r}]
"""
    done = subprocess.run([sys.executable, "-c", loader + program], check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert len(names(tmp_path)) == 1
    with atomic.replacing(tmp_path / "slow") as slow:
        slow.write(b"slow")
        put(tmp_path / "quick")
        assert len(names(tmp_path)) == 2  # the slow writer's own, and what is finished
    assert names(tmp_path) == ["quick", "slow"]
    assert (tmp_path / "slow").read_bytes() == b"slow"


def test_without_locks_only_old_temporaries_are_swept(tmp_path, monkeypatch):
    monkeypatch.setattr(atomic, "fcntl", None)
    young, old = (tmp_path / f"{atomic.PREFIX}{name}{atomic.SUFFIX}" for name in ("young", "old"))
    young.touch()
    old.touch()
    os.utime(old, (0, 0))
    put(tmp_path / "a")
    assert names(tmp_path) == sorted(["a", young.name])


def test_many_threads_write_one_file(tmp_path):
    path = tmp_path / "a"
    contents = [bytes([k]) * 10_000 for k in range(8)]

    def work(content):
        for _ in range(10):
            put(path, content)
            assert path.read_bytes() in contents

    finish([partial(work, content) for content in contents])
    assert path.read_bytes() in contents
    assert names(tmp_path) == ["a"]


@posix
def test_a_full_disk_leaves_the_old_file(tmp_path):
    """A limit on the size of files stands for the disk."""
    import resource

    path = tmp_path / "a"
    put(path, b"old")
    handler, limits = signal.signal(signal.SIGXFSZ, signal.SIG_IGN), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            put(path, bytes(10_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["a"]
