"""A call's launches, recorded once per kind of call and then repeated: with other addresses, and nothing else anew.

The functions of this back end allocate memory and launch kernels. For tensors of the same shapes and dtypes they do the
same every time, and working it out takes the host longer than a small batch takes the device. So the first call is
watched: which launches it makes, and where each address comes from. Later calls allocate and launch.

A function that does anything else, such as a PyTorch operation between two launches, is not recorded: it runs as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from swallowtail.kernels.gpu import launch as launching
from swallowtail.kernels.gpu.device import capturing
from swallowtail.kernels.gpu.launch import runs_cuda
from swallowtail.kernels.gpu.triton_private import current_stream

Function = Callable[..., Any]  # of tensors and Nones; returns a tensor or a tuple of them
ATTEMPTS = 3  # to record a kind of call: the first ones may make tables that last
KINDS = 256  # of calls remembered in one store before all are dropped
ALIGNMENT = 512  # of addresses within a block, as PyTorch's allocator has it
_current_device = torch.cuda.current_device

ALLOCATIONS = {"empty", "empty_like", "new_empty"}
# What may happen beside launches: looks at a tensor, and other views of its memory.
LOOKS = {
    "__get__", "__len__", "data_ptr", "dim", "element_size", "get_device", "is_contiguous", "ndimension", "nelement",
    "numel", "size", "storage_offset", "stride", "untyped_storage",
}  # fmt: skip
VIEWS = {
    "__getitem__", "__iter__", "contiguous", "detach", "float", "double", "flatten", "reshape", "select", "to",
    "transpose", "unbind", "unsqueeze", "view",
}  # fmt: skip


class Output(NamedTuple):
    """What to allocate for a result."""

    shape: torch.Size
    dtype: torch.dtype
    device: torch.device


class Start(NamedTuple):
    """A launch: how it is started, and where each of its addresses comes from.

    ``bases`` number the inputs, then the outputs, then the block of all other memory; −1 is address 0.
    """

    start: Callable[..., None]
    bases: list[int]
    offsets: list[int]


class Replay:
    """A recorded call.

    Args:
        where: number of the device.
        starts: its launches.
        outputs: its results.
        block: bytes that it needs beside them.
        kept: tensors made earlier that the launches read.
    """

    def __init__(
        self, where: int, starts: list[Start], outputs: list[Output], block: int, kept: list[Tensor]
    ) -> None:
        self._where, self._starts, self._outputs, self._block, self._kept = (
            where,
            starts,
            outputs,
            block,
            kept,
        )

    def __call__(self, *inputs: Tensor | None) -> Any:
        """The results, or None where these tensors are not like those that were recorded."""
        bases = [0 if t is None else t.data_ptr() for t in inputs]
        mixed = 0
        for address in bases:
            mixed |= address
        if mixed & 15 or _current_device() != self._where:
            return None
        results = []
        for shape, dtype, device in self._outputs:
            result = torch.empty(shape, dtype=dtype, device=device)
            results.append(result)
            bases.append(result.data_ptr())
        if self._block:
            block = torch.empty(self._block, dtype=torch.uint8, device=self._outputs[0].device)
            bases.append(block.data_ptr())
        bases.append(0)
        stream = current_stream(self._where)
        for start, owners, offsets in self._starts:
            # ``strict=True`` takes a tenth of the time.
            start(stream, *[bases[b] + o for b, o in zip(owners, offsets)])
        return results[0] if len(results) == 1 else tuple(results)


def replayed(store: dict[Any, Any], key: Any, function: Function, *inputs: Tensor | None) -> Any:
    """``function(*inputs)``, by a recording if there is one, else while making one.

    Args:
        store: where recordings are kept.
        key: all that decides what the function does beside the addresses of its inputs: their shapes and dtypes, the
            device, and what the function itself was made for.
        function: of these inputs. Its launches must not depend on their numbers.
        inputs: contiguous tensors, the first of them not None.
    """
    found = store.get(key)
    if type(found) is Replay:
        result = found(*inputs)
        return function(*inputs) if result is None else result
    first = inputs[0]
    assert first is not None
    attempts = found or 0
    aligned = not any(t is not None and t.data_ptr() % 16 for t in inputs)
    # While a CUDA graph is recorded, a function may make do without what it cannot make then.
    if attempts >= ATTEMPTS or not aligned or not runs_cuda(first.get_device()) or capturing(first.device):
        return function(*inputs)
    recorder = _Recorder(inputs)
    with recorder:
        result = function(*inputs)
    if len(store) >= KINDS:
        store.clear()
    store[key] = recorder.replay(result) or attempts + 1
    return result


class _Recorder(TorchFunctionMode):
    """Watches the PyTorch functions and the launches of one call in this thread."""

    def __init__(self, inputs: tuple[Tensor | None, ...]) -> None:
        super().__init__()
        self._inputs, self._good = inputs, True
        self._fresh: list[Tensor] = []  # what was allocated
        self._launches: list[tuple[Any, list[Any]]] = []
        self._thread = get_ident()

    def __enter__(self) -> Any:
        self._before = launching.watcher
        launching.watcher = self._launched
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        launching.watcher = self._before

    def _launched(self, start: Any, arguments: tuple[Any, ...]) -> None:
        if get_ident() == self._thread:
            self._launches.append((start, [a for a in arguments if isinstance(a, (Tensor, float))]))

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))  # within this method, nobody watches
        name = getattr(function, "__name__", "")
        if name in ALLOCATIONS:
            self._fresh.append(result)
        elif name in VIEWS or (name in LOOKS and isinstance(result, Tensor)):
            parts = result if isinstance(result, (tuple, list)) else (result,)
            self._good &= all(_memory(part) == _memory(args[0]) for part in parts)
        elif name not in LOOKS:
            self._good = False
        return result

    def replay(self, result: Any) -> Replay | None:
        """The recording, or None if something else happened than allocations and launches."""
        outputs = result if isinstance(result, tuple) else (result,)
        if not self._good or not self._launches:
            return None
        # By the memory that a tensor lies in: its base, and its address or, in the block, the address of its offset 0.
        owners: dict[int, tuple[int, int]] = {}
        fresh = {_memory(t): t for t in self._fresh}
        for base, t in enumerate((*self._inputs, *outputs)):
            if t is None:
                continue
            is_output = base >= len(self._inputs)
            if _memory(t) in owners or (is_output and not _is_whole(t, fresh)):
                return None
            owners[_memory(t)] = base, t.data_ptr()
        size, block = 0, len(self._inputs) + len(outputs)
        for memory, t in fresh.items():
            if memory not in owners:
                owners[memory] = block, memory - size
                size += -(-t.untyped_storage().nbytes() // ALIGNMENT) * ALIGNMENT
        starts, kept = [], list[Tensor]()
        for start, arguments in self._launches:
            if any(isinstance(a, float) for a in arguments):
                return None
            kept += [a for a in arguments if _memory(a) not in owners]
            places = [(*owners.get(_memory(a), (-1, 0)), a.data_ptr()) for a in arguments]
            starts.append(Start(start, [p[0] for p in places], [address - at for _, at, address in places]))
        about = [Output(t.shape, t.dtype, t.device) for t in outputs]
        return Replay(outputs[0].get_device(), starts, about, size, kept)


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _is_whole(tensor: Tensor, fresh: dict[int, Tensor]) -> bool:
    """Whether a result is all of something that was allocated in the call, in order."""
    made = fresh.get(_memory(tensor))
    return made is not None and tensor.is_contiguous() and tensor.nbytes == made.untyped_storage().nbytes()
