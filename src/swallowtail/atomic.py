"""Files that are at every moment the old one or the new one: all that the package writes is written here.

The new contents go to a temporary file in the same folder, which takes the old one's place when it is complete and on
the disk. A writer holds a lock on its temporary file. One that nobody holds belongs to a process that was killed; the
next write in the folder deletes it.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

# Names of temporary files: short, so that any name a folder takes can be written.
PREFIX, SUFFIX = (".swallowtail-", ".tmp")
ABANDONED = 24 * 3600.0  # seconds: a temporary file as old as this is deleted where files cannot be locked


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A binary file whose contents become those of ``path`` when the block ends; if it raises, nothing has changed.

    The new file has the permissions of the old one, and its owner where that is allowed. A symbolic link stays, and
    what it points to is replaced. Devices and pipes are written to as they are.

    Args:
        path: of the file; its folder must exist.

    Raises:
        OSError: it cannot be written: no folder, no permission, no space.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with replacing(Path(folder) / "a.txt") as file:
    ...         _ = file.write(b"all of it")
    ...     (Path(folder) / "a.txt").read_bytes()
    b'all of it'
    """
    target = Path(os.path.realpath(path))
    old = _status(target)
    if old is not None and not stat.S_ISREG(old.st_mode):
        with open(target, "wb") as direct:  # a folder raises here; a device keeps its place
            yield direct
        return
    if old is not None and not os.access(target, os.W_OK):
        raise PermissionError(13, "Permission denied (the file is read-only)", str(path))
    if not target.parent.exists():  # else the error would name the temporary file
        raise FileNotFoundError(2, "No such folder", str(target.parent))
    sweep(target.parent)
    made = list[Path]()  # named here before they are created: Ctrl-C may come between two lines
    try:
        with _create(
            target.parent, 0o666 if old is None else stat.S_IMODE(old.st_mode) & 0o700, made
        ) as file:
            yield file
            file.flush()
            if old is not None:
                _take_over(file.fileno(), old)
            os.fsync(file.fileno())
            os.replace(made[-1], target)  # while the lock is held: nobody takes it for an abandoned one
    except BaseException:
        for temporary in made:
            temporary.unlink(missing_ok=True)
        raise
    _sync_folder(target.parent)


def sweep(folder: Path) -> None:
    """Delete the temporary files that killed processes have left in a folder."""
    # A folder that cannot be listed; the write itself will say what is wrong.
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            if name.startswith(PREFIX) and name.endswith(SUFFIX):
                with contextlib.suppress(OSError):
                    _delete_if_abandoned(folder / name)


def _delete_if_abandoned(temporary: Path) -> None:
    if fcntl is None:
        if time.time() - temporary.stat().st_mtime > ABANDONED:
            temporary.unlink()
        return
    with open(temporary, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # an OSError if its writer lives
        temporary.unlink(missing_ok=True)


def _create(folder: Path, mode: int, made: list[Path]) -> BinaryIO:
    """A new temporary file, locked; its name is the last of ``made``."""
    while True:
        made.append(folder / f"{PREFIX}{uuid.uuid4().hex}{SUFFIX}")
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        file = os.fdopen(os.open(made[-1], flags, mode), "w+b")
        if fcntl is not None:
            with contextlib.suppress(OSError):  # some network file systems have no locks
                fcntl.flock(file, fcntl.LOCK_EX)
        found = _status(made[-1])
        if found is not None and os.path.samestat(found, os.fstat(file.fileno())):
            return file
        file.close()  # another process swept it before it was locked


def _status(path: Path) -> os.stat_result | None:
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None


def _take_over(descriptor: int, old: os.stat_result) -> None:
    """The old file's owner and permissions, for the new one."""
    if not hasattr(os, "fchmod"):
        return
    mode, new = stat.S_IMODE(old.st_mode), os.fstat(descriptor)
    if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
        try:
            os.fchown(descriptor, old.st_uid, old.st_gid)
        except OSError:  # not allowed to give it away: then its group must not get what the old one could do
            mode &= 0o707
    os.fchmod(descriptor, mode)


def _sync_folder(folder: Path) -> None:
    """After a power failure the folder should name the new file too."""
    with contextlib.suppress(OSError):  # not every file system can
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
