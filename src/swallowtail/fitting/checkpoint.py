"""Fits that survive a kill: one file holds every finished form and the state of the one under way.

A fit is a deterministic function of its matrix, its arguments and its seed, and a state holds all that its
next step depends on; so the answer of a resumed fit is the one an undisturbed run gives, to the bit.
"""

from __future__ import annotations

import copy
import hashlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from swallowtail import io
from swallowtail.fitting.quality import Candidate
from swallowtail.fitting.watch import at_stop

EVERY = 5.0  # seconds between two states written, at least
SHARE = 0.05  # of the time may go into writing them, and as much into copies of those between
_KEY = "swallowtail checkpoint"  # metadata under which a file says that it is one


class Checkpoint:
    """The forms of one fit in a safetensors file at ``path``; None keeps nothing.

    A form is a dict of arrays, which become tensors "form/name", and of what JSON can hold.
    """

    def __init__(self, path: Any, problem: Any, arguments: tuple[Any, ...]) -> None:
        self._path = None if path is None else Path(path)
        self._forms: dict[str, dict[str, Any]] = {}
        self._next = time.perf_counter() + EVERY
        self._copy: tuple[str, dict[str, Any]] | None = None  # a form and its state, newer than the file
        self._next_copy = 0.0
        if self._path is None:
            return
        if not self._path.parent.is_dir():
            raise ValueError(f"checkpoint: expected an existing folder, got {self._path.parent}")
        self._digest = _digest(problem, arguments)
        if self._path.exists():
            self._forms = self._read(self._path)
        at_stop(self._write_copy)

    def finished(self, name: str) -> Candidate | None:
        """The form, if the same fit has finished it earlier."""
        form = self._forms.get(name, {})
        if "method" not in form:
            return None
        tensors = {
            key: torch.from_numpy(value) for key, value in form.items() if isinstance(value, np.ndarray)
        }
        history = [(str(stage), int(k), float(value)) for stage, k, value in form["history"]]
        operator = io.unpack(form["operator"], tensors)
        return Candidate(form["method"], operator, history, float(form["objective"]))

    def finish(self, name: str, candidate: Candidate) -> None:
        """Keep a finished form."""
        if self._path is not None:
            header, tensors = io.pack(candidate.operator)
            self._forms[name] = {
                "method": candidate.method,
                "history": candidate.history,
                "objective": candidate.objective,
                "operator": header,
                **{key: tensor.numpy() for key, tensor in tensors.items()},
            }
            self._copy = None
            self._write()

    def state(self, name: str) -> dict[str, Any] | None:
        """The last state written of a form that was not finished."""
        form = self._forms.get(name)
        return form if form is not None and "method" not in form else None

    def saver(self, name: str) -> Callable[[dict[str, Any]], None] | None:
        """What a fitter calls with its state; now and then it is written, or copied to be written at a stop."""
        if self._path is None:
            return None

        def save(state: dict[str, Any]) -> None:
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
        """The fit is done: the file has served, and so has what a kill in mid-write may have left."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)
            for orphan in self._path.parent.glob(f".{self._path.name}.*.tmp"):
                orphan.unlink(missing_ok=True)

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
        io.write(self._path, tensors, {_KEY: json.dumps({"digest": self._digest, "forms": notes})})

    def _read(self, path: Path) -> dict[str, dict[str, Any]]:
        try:
            tensors, metadata = io.read(path)
            header = json.loads(metadata[_KEY])
        except (ValueError, KeyError) as error:
            raise ValueError(
                f"checkpoint: expected a file written by an unfinished fit, got something else at {path}; "
                "try another path, or delete it"
            ) from error
        if header["digest"] != self._digest:
            raise ValueError(
                f"checkpoint: {path} belongs to another fit (other matrix or arguments); "
                "try another path, or delete it"
            )
        forms: dict[str, dict[str, Any]] = header["forms"]
        for full_name, tensor in tensors.items():
            name, key = full_name.split("/")
            forms[name][key] = tensor.numpy()
        return forms


def _digest(problem: Any, arguments: tuple[Any, ...]) -> str:
    """Of all that the result depends on; arrays among the arguments by their bytes."""
    sha = hashlib.sha256()
    for value in (problem.n, problem.dense, *(problem.pairs or ()), *arguments):
        if isinstance(value, dict):
            value = sorted(
                (key, np.asarray(v).tobytes() if hasattr(v, "shape") else v) for key, v in value.items()
            )
        array = value if isinstance(value, np.ndarray) else np.frombuffer(repr(value).encode(), np.uint8)
        sha.update(repr(array.shape).encode() + np.ascontiguousarray(array).tobytes())
    return sha.hexdigest()
