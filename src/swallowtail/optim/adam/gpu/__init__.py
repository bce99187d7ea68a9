"""GivensAdam's own GPU kernels, and the one place that decides whether they are used."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from swallowtail.kernels import select_backend


def gpu_for(like: Tensor) -> Any:
    """The module `launch` if the GPU back end works on tensors like this one, else None.

    It is imported here and nowhere else: Triton is optional, and takes a while to import.
    """
    if select_backend(like) != "gpu":
        return None
    from swallowtail.optim.adam.gpu import launch

    return launch
