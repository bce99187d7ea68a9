"""One file per fitting algorithm."""
