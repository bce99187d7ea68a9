"""Thin bridges to other projects. Each is imported by its own name, and needs that project only if it says so."""
