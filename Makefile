# Two commands on a fresh machine: make demo, make test. Both set up .venv first; Python ≥ 3.11 and pip are enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= 2
# A test that hangs ends its process after five minutes, with the stacks of all threads: a failure that has a name.
BOUNDED := -o faulthandler_timeout=300 -o faulthandler_exit_on_timeout=true
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1

EXTRAS_SECONDS ?= 1800

# Of a full run, about; twenty minutes on an idle core, half an hour at the most.
SOAK_SECONDS ?= 1500

.PHONY: demo docs test test-extras soak lint bench clean

# A real covariance, its fit, the rivals beside it and a picture: under a minute and a half, most of it compiling.
demo: $(VENV)/.ready
	$(BIN)/python examples/digits.py
	$(BIN)/python examples/start.py
	@echo
	@echo "Pictures are in demo-output/. The paper's experiments take three minutes:"
	@echo "  $(BIN)/swallowtail reproduce --quick -o demo-output/report"

# The site, in site/index.html. A warning is an error: a link that leads nowhere, a name that is gone.
docs: $(VENV)/.ready
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs site

# Lint and site side by side, then the tests. -rs: one line for each reason to skip, with how often it was one.
test: $(VENV)/.ready
	$(MAKE) -j2 lint docs
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -rs $(BOUNDED)

# What is slower or needs optional packages. Bounded in time.
test-extras: $(VENV)/.ready
	$(BIN)/pip install --quiet -e ".[dev,extras]"
	timeout $(EXTRAS_SECONDS) $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -rs -m extras \
		-o faulthandler_timeout=1200 -o faulthandler_exit_on_timeout=true

# Long trials of reliability: fuzzing, guard pages, interrupts, kills, damaged files, full disks, little memory. Prints a
# row for each kind; --write also keeps them and makes the table of docs/reliability.md.
soak: $(VENV)/.ready
	timeout 1800 $(BIN)/python -W ignore -m soak --seconds $(SOAK_SECONDS)

# Style, types, layers of imports, dead code. The other rules of the house are in tests/test_house.py.
lint: $(VENV)/.ready
	$(BIN)/ruff format --check src tests benchmarks examples soak
	$(BIN)/ruff check src tests benchmarks examples soak
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/vulture

bench: $(VENV)/.ready
	$(BIN)/pip install --quiet -e ".[bench]"
	$(BIN)/python -m benchmarks.kernels

$(VENV)/.ready: pyproject.toml constraints.txt
	@echo "setting up $(VENV) (PyTorch, Numba and the test tools: a few minutes the first time)"
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "swallowtail needs Python 3.11 or newer, this is " + sys.version)'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet -e ".[dev]"
	touch $@

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .mypy_cache .hypothesis demo-output
