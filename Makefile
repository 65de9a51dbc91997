# Everything a newcomer types. Each target sets up what it needs.

PYTHON ?= python3.11
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: setup serve test lint bench sim clean

setup: $(STAMP)

$(STAMP): pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "Riacho needs $(PYTHON); set PYTHON=... to use another 3.11+"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

serve: setup
	$(BIN)/riacho serve $(ARGS)

test: setup
	$(BIN)/python -m pytest -n 2 --dist loadfile $(ARGS)

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: setup
	$(BIN)/python -m benchmarks $(ARGS)

sim: setup
	$(BIN)/python -m tests.simulation.simulator --seeds $(or $(SEEDS),200) $(ARGS)

clean:
	rm -rf $(VENV) build *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
