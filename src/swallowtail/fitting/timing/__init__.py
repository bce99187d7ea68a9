"""How long products take: a model of a machine, not a stopwatch, so that the same call gives the same answer."""

from swallowtail.fitting.timing.calibrate import calibrate
from swallowtail.fitting.timing.model import TimeModel, time_model
from swallowtail.fitting.timing.record import calibration_file

__all__ = ["TimeModel", "calibrate", "calibration_file", "time_model"]
