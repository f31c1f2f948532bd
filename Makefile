# `make demo` and `make test` each set up whatever they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.edgewise-installed
DEMO_STAMP := $(VENV)/.edgewise-demo
OUT ?= demo-output
WORKERS ?= 2
FUZZ ?= 20000
MODELS ?= 10000
START ?= 0
OLDEST := build/oldest
OLDEST_PYG := 2.6.1

# One thread per process: the graphs are small, and several workers with many threads each only get in one another's way.
ONE_THREAD := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 NUMBA_NUM_THREADS=1

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all test-oldest fuzz fuzz-models pyg-suite lint docs docs-table bench clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-11s %s\n", $$1, $$2}'

setup: $(STAMP) ## create .venv and install edgewise with every extra

# Runs again only when the dependencies change. A .venv that is already there is kept and completed.
$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[all]"
	touch $@

# The demo needs a part of what the tests need; a .venv with everything serves it as well. Without numba nothing is compiled first.
$(DEMO_STAMP): pyproject.toml constraints.txt
	@echo "Setting up $(VENV) for the demo: torch, PyG and a few more. The first time this takes some minutes ..."
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	test -e $(STAMP) || $(BIN)/python -m pip install --constraint constraints.txt --editable ".[cli,plot,page]"
	touch $@

demo: $(DEMO_STAMP) ## train a small model, explain its nodes, write a page that says why: open demo-output/why.html
	$(ONE_THREAD) $(BIN)/edgewise demo --out $(OUT)

test: setup ## run the tests (without those marked slow)
	$(ONE_THREAD) $(BIN)/python -m pytest -n $(WORKERS) -m "not slow"

test-all: setup ## run every test
	$(ONE_THREAD) $(BIN)/python -m pytest -n $(WORKERS)

# The parts that touch PyG's internals: hooks, lowered layers, theorems on every conv, and its own explainers.
test-oldest: ## run a part of the tests with the oldest torch_geometric that pyproject.toml allows
	test -x $(OLDEST)/bin/python || $(PYTHON) -m venv $(OLDEST)
	grep -v '^torch_geometric==' constraints.txt > $(OLDEST)/constraints.txt
	$(OLDEST)/bin/python -m pip install --quiet --constraint $(OLDEST)/constraints.txt --editable ".[cli,fast,plot,test]" \
	    scipy torch_geometric==$(OLDEST_PYG)
	$(ONE_THREAD) $(OLDEST)/bin/python -m pytest -n $(WORKERS) -m "not slow" \
	    tests/adapters tests/model tests/program tests/question tests/algorithms/test_theorems.py

pyg-suite: setup ## run PyG's own explain tests with ours in place of its algorithms: make pyg-suite PYG=path/of/a/checkout
	$(ONE_THREAD) $(BIN)/python tests/support/pyg_suite.py $(PYG) -W ignore

lint: setup ## check style, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

fuzz: setup ## many malformed calls and command lines (FUZZ=20000)
	$(ONE_THREAD) EDGEWISE_THOROUGH=1 EDGEWISE_FUZZ=$(FUZZ) $(BIN)/python -m pytest -n $(WORKERS) \
		tests/api/test_malformed_calls.py tests/cli/test_malformed_commands.py

# Answers about random models are compared with a slow twin that shares no code with the library; see CONTRIBUTING.md.
fuzz-models: setup ## answers about random models against a slow twin (MODELS=10000 START=0)
	$(ONE_THREAD) $(BIN)/python tests/support/model_fuzz.py --models $(MODELS) --start $(START) --workers $(WORKERS)

docs: setup ## build the documentation into build/docs, one folder that opens from disk: build/docs/index.html
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs build/docs
	@echo "Open this: build/docs/index.html"

docs-table: setup ## write the table of files in docs/architecture.md again
	$(BIN)/python docs/draw_architecture.py

bench: setup ## run the benchmarks
	$(ONE_THREAD) $(BIN)/python -m benchmarks

clean: ## remove caches, build output and the demo's output; keep .venv
	rm -rf build dist demo-output .pytest_cache .mypy_cache .ruff_cache .hypothesis src/*.egg-info
	find src tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
