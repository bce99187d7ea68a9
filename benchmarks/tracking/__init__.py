"""A matrix that moves, followed by `Tracker`: python -m benchmarks.tracking."""
