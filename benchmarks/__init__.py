"""The benchmarks, one package per subject: docs/benchmarks.md lists the commands. Rows go to benchmarks/results."""
