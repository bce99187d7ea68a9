"""Waits that end: for other processes, for threads, for the processes of a group."""

import contextlib
import os
import signal
import subprocess
import tempfile
import threading
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

LIMIT = 240  # seconds; enough to compile kernels meanwhile, on a machine that is busy


@contextlib.contextmanager
def started(command, limit=LIMIT, **options):
    """A process, killed with its children when the block is left, and after ``limit`` seconds. Its pipes end then,
    so a test that reads from them fails where it waits."""
    with subprocess.Popen(command, start_new_session=True, **options) as process:

        def kill():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)

        watchdog = threading.Timer(limit, kill)
        watchdog.daemon = True
        watchdog.start()
        try:
            yield process
        finally:
            watchdog.cancel()
            kill()


def finish(works, limit=LIMIT):
    """Call each of the functions in a thread of its own, and wait for all. Their errors are raised by pytest."""
    threads = [threading.Thread(target=work, daemon=True) for work in works]
    for thread in threads:
        thread.start()
    end = time.monotonic() + limit
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    assert not any(thread.is_alive() for thread in threads), f"a thread did not end within {limit} s"


def gloo(work, world, *arguments, limit=LIMIT):
    """``work(rank, *arguments)`` in as many processes of one group. They meet in a file, which takes no port."""
    with tempfile.TemporaryDirectory() as folder:
        group = mp.spawn(_joined, (work, world, folder, arguments), nprocs=world, join=False)
        end = time.monotonic() + limit
        try:
            while not group.join(timeout=1.0):
                assert time.monotonic() < end, f"the processes did not end within {limit} s"
        finally:
            for process in group.processes:
                process.kill()


def _joined(rank, work, world, folder, arguments):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=world)
    work(rank, *arguments)
    dist.destroy_process_group()
    os._exit(0)  # on the usual way out gloo's threads sometimes abort the process
