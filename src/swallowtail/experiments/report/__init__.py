"""The report: run the experiments, keep their rows, put what they say on one page."""
