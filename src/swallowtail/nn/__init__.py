"""Layers: trainable rotations, alone or folded into a Linear."""

from swallowtail.nn.rotate import Rotate, Transposed

__all__ = ["Rotate", "Transposed"]
