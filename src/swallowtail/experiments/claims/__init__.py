"""The paper's claims made in passing, each with a number."""
