"""Fits that survive a kill: one file holds every finished form and the state of the one under way.

A fit is a deterministic function of its matrix, its arguments and its seed, and a state holds all that its
next step depends on; so the answer of a resumed fit is the one an undisturbed run gives, to the bit.

Nothing read from disk is trusted. The file carries a SHA-256 digest of its contents, so that damage is noticed; and
what it says is checked in `checkpoint_contents` before compiled code, which checks nothing, works with it.
"""

from __future__ import annotations

import copy
import hashlib
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from swallowtail import atomic, io
from swallowtail.errors import ArgumentError
from swallowtail.fitting.checkpoint_contents import Form, check_form, finished_form
from swallowtail.fitting.result import Candidate
from swallowtail.fitting.watch import at_stop

EVERY = 5.0  # seconds between two states written, at least
SHARE = 0.05  # of the time may go into writing them, and as much into copies of those between
_KEY, _DIGEST = "swallowtail checkpoint", "sha256"  # metadata: what the file holds, and the digest of it all
_DTYPES = (torch.float64, torch.int64, torch.int32)  # all that a fit ever writes


class Checkpoint:
    """The forms of one fit in a safetensors file; None as path keeps nothing.

    Args:
        path: of the file.
        problem: what is fitted.
        budget: how many rotations a state may have.
        arguments: all else that the answer depends on.
    """

    def __init__(self, path: Any, problem: Any, budget: int, arguments: tuple[Any, ...]) -> None:
        self._path = None if path is None else Path(path)
        self._forms: dict[str, Form] = {}  # arrays become tensors "form/name"; JSON holds the rest
        self._done: dict[str, Candidate] = {}
        self._next = time.perf_counter() + EVERY
        self._warned = False  # that it cannot be written
        self._copy: tuple[str, Form] | None = None  # a form and its state, newer than the file
        self._next_copy = 0.0
        if self._path is None:
            return
        if not self._path.parent.is_dir():
            raise ArgumentError("checkpoint", "an existing folder", self._path.parent)
        self._fit = _digest_of_fit(problem, arguments)
        if self._path.exists():
            self._forms = self._read(self._path)
            self._done = self._checked(self._path, problem.n, budget)
        at_stop(self._write_copy)

    def finished(self, name: str) -> Candidate | None:
        """The form, if the same fit has finished it earlier."""
        return self._done.get(name)

    def finish(self, name: str, candidate: Candidate) -> None:
        """Keep a finished form."""
        if self._path is not None:
            self._forms[name] = finished_form(candidate)
            self._copy = None
            self._write()

    def state(self, name: str) -> Form | None:
        """The last state written of a form that was not finished."""
        form = self._forms.get(name)
        return form if form is not None and "method" not in form else None

    def saver(self, name: str) -> Callable[[Form], None] | None:
        """What a fitter calls with its state; now and then it is written, or copied to be written at a stop."""
        if self._path is None:
            return None

        def save(state: Form) -> None:
            begin = time.perf_counter()
            if begin >= self._next:
                self._forms[name] = state
                self._write()
                end = time.perf_counter()
                self._next = end + max(EVERY, (end - begin) / SHARE)
                self._copy = None
            elif begin >= self._next_copy:
                self._copy = name, copy.deepcopy(state)  # the fitter goes on to work in its arrays
                end = time.perf_counter()
                self._next_copy = end + (end - begin) / SHARE

        return save

    def remove(self) -> None:
        """The fit is done: delete the file, and what a kill in mid-write may have left."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)
            atomic.sweep(self._path.parent)

    def _write_copy(self) -> None:
        """The fit was stopped: little of its work should be lost."""
        if self._copy is not None:
            name, state = self._copy
            self._forms[name], self._copy = state, None
            self._write()

    def _write(self) -> None:
        assert self._path is not None
        tensors, notes = {}, {}
        for name, form in self._forms.items():
            notes[name] = {key: value for key, value in form.items() if not isinstance(value, np.ndarray)}
            for key in form.keys() - notes[name].keys():
                tensors[f"{name}/{key}"] = torch.from_numpy(form[key])
        header = json.dumps({"fit": self._fit, "forms": notes})
        try:
            io.write(self._path, tensors, {_KEY: header, _DIGEST: digest_of_contents(tensors, header)})
        except OSError as error:  # a full disk: the fit is worth more than its checkpoint
            if not self._warned:
                text = f"the checkpoint {self._path} cannot be written ({error.strerror or error})"
                warnings.warn(f"{text}; the fit goes on, and tries again now and then", stacklevel=2)
            self._warned = True

    def _read(self, path: Path) -> dict[str, Form]:
        """The forms of the file; whether they can be used is not yet known."""
        try:
            tensors, metadata = io.read(path)
            header, digest = metadata[_KEY], metadata.get(_DIGEST)
        except (ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
            raise _refused(path, f"something else at {path}") from error
        if digest != digest_of_contents(tensors, header):
            raise _refused(path, f"{path}, which is damaged: its contents do not have the digest it names")
        try:
            contents = json.loads(header)
            if contents["fit"] == self._fit:
                return _forms(contents["forms"], tensors)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise _refused(path, f"{path}, whose contents are no forms ({error!r})") from error
        got = f"{path}, which belongs to another fit (other matrix or arguments)"
        raise ArgumentError("checkpoint", "a file of this fit", got, "try another path, or delete it")

    def _checked(self, path: Path, n: int, budget: int) -> dict[str, Candidate]:
        """The finished forms; every form is checked."""
        done = {}
        for name, form in self._forms.items():
            try:
                candidate = check_form(form, n, budget)
            except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
                what = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
                raise _refused(path, f"{path}, in which {name!r} is wrong: {what}") from error
            if candidate is not None:
                done[name] = candidate
        return done


def _forms(notes: Any, tensors: dict[str, torch.Tensor]) -> dict[str, Form]:
    """What JSON and the tensors hold, put together; KeyError, TypeError or ValueError if that cannot be done."""
    forms: dict[str, Form] = {name: dict(form) for name, form in notes.items()}
    for full_name, tensor in tensors.items():
        name, key = full_name.split("/")
        forms[name][key] = tensor.numpy()
    return forms


def _refused(path: Path, got: str) -> ArgumentError:
    expected = "a file written by an unfinished fit"
    return ArgumentError("checkpoint", expected, got, "try another path, or delete it")


def digest_of_contents(tensors: dict[str, torch.Tensor], header: str) -> str:
    """SHA-256 of the header, and of every tensor with its name, dtype and shape; "" if a dtype is not ours."""
    sha = hashlib.sha256(header.encode())
    for name, tensor in sorted(tensors.items()):
        if tensor.dtype not in _DTYPES:
            return ""
        sha.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        sha.update(np.ascontiguousarray(tensor.numpy()).data)
    return sha.hexdigest()


def _digest_of_fit(problem: Any, arguments: tuple[Any, ...]) -> str:
    """Of all that the result depends on; arrays among the arguments by their bytes."""
    sha = hashlib.sha256()
    for value in (problem.n, problem.dense, *(problem.samples or ()), *arguments):
        if isinstance(value, dict):
            value = sorted(
                (key, np.asarray(v).tobytes() if hasattr(v, "shape") else v) for key, v in value.items()
            )
        array = value if isinstance(value, np.ndarray) else np.frombuffer(repr(value).encode(), np.uint8)
        sha.update(repr(array.shape).encode() + np.ascontiguousarray(array).tobytes())
    return sha.hexdigest()
