"""Fits of a matrix that lies on a GPU: growth, polish and regrowth there; angles and pairs travel, entries do not."""
