"""Fitting H ≈ Q D Qᵀ and R ≈ Q: two functions for users, and one file per algorithm in `methods`."""

from swallowtail.fitting.core.records import Stop
from swallowtail.fitting.methods.tracker import Tracker
from swallowtail.fitting.result import FitResult, Rival
from swallowtail.fitting.rotation import fit_rotation
from swallowtail.fitting.symmetric import fit_symmetric

__all__ = ["FitResult", "Rival", "Stop", "Tracker", "fit_rotation", "fit_symmetric"]
