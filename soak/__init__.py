"""Long trials of what the package promises: `make soak`. One file per kind; docs/reliability.md says what and why.

A trial is a generator function of a seed. It yields one outcome per case: None, or what is wrong. It goes
on for ever; the runner ends it when enough cases are done or its time is up.
"""
