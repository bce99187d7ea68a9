"""Bars hold no lock that another process could leave locked."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import swallowtail
from swallowtail.progress import Bar

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")

# A child takes the lock of bars, tqdm's own and ours, and is killed with it. Then its parent fits, with a bar.
KILLED = """
import os, signal
import swallowtail as st
from swallowtail.progress import Bar
from tqdm import tqdm

H = st.random_symmetric(8, 2, 0)
for lock in (tqdm.get_lock(), Bar.get_lock()):
    child = os.fork()
    if child == 0:
        lock.acquire()
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
for progress in (False, True):
    print(st.fit_symmetric(H, progress=progress).status)
"""


@forks
def test_a_killed_child_leaves_no_bar_waiting():
    done = subprocess.run(
        [sys.executable, "-c", KILLED], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.split() == ["converged", "converged"]
    assert "fit" in done.stderr


@forks
def test_a_child_has_a_free_lock_whoever_holds_its_parents():
    held, go = threading.Event(), threading.Event()

    def hold() -> None:
        with Bar.get_lock():
            held.set()
            go.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(60)
    child = os.fork()
    if child == 0:
        os._exit(0 if Bar.get_lock().acquire(timeout=10) else 1)
    go.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_bar_is_shown_and_starts_no_thread(capsys):
    before = threading.active_count()
    with Bar(total=3, desc="work", mininterval=0) as bar:
        bar.update(2)
    assert threading.active_count() == before
    assert "work" in capsys.readouterr().err


def test_no_other_module_makes_bars_of_tqdm():
    source = Path(swallowtail.__file__).parent
    found = [path.name for path in source.rglob("*.py") if "import tqdm" in path.read_text(encoding="utf-8")]
    assert found == ["progress.py"]
