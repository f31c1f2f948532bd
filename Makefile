# `make demo` and `make test` each set up whatever they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.edgewise-installed
OUT ?= demo-output
WORKERS ?= 2

# One thread per process: the graphs are small, and several workers with many threads each only get in one another's way.
ONE_THREAD := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 NUMBA_NUM_THREADS=1

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all lint bench clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-9s %s\n", $$1, $$2}'

setup: $(STAMP) ## create .venv and install edgewise with every extra

# Runs again only when the dependencies change. A .venv that is already there is kept and completed.
$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[all]"
	touch $@

demo: setup ## train a model, explain all of its nodes with every method, draw one of them
	$(ONE_THREAD) $(BIN)/python -m edgewise.demo --out $(OUT)

test: setup ## run the tests (without those marked slow)
	$(ONE_THREAD) $(BIN)/python -m pytest -n $(WORKERS) -m "not slow"

test-all: setup ## run every test
	$(ONE_THREAD) $(BIN)/python -m pytest -n $(WORKERS)

lint: setup ## check style, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: setup ## run the benchmarks
	$(ONE_THREAD) $(BIN)/python -m benchmarks

clean: ## remove caches, build output and the demo's output; keep .venv
	rm -rf build dist demo-output .pytest_cache .mypy_cache .ruff_cache .hypothesis src/*.egg-info
	find src tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
