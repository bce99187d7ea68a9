"""A step of GivensAdam on a GPU."""
