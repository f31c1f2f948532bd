# `make demo` and `make test` each set up whatever they need.
PYTHON ?= python3
# Each version of Python has an environment of its own: .venv for 3.11, build/venv/3.12 for another.
VERSION := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
ifeq ($(VERSION),)
$(error $(PYTHON) does not run. Name a Python from 3.11 on: make test PYTHON=/path/of/python3.12)
endif
VENV := $(if $(filter 3.11,$(VERSION)),.venv,build/venv/$(VERSION))
BIN := $(VENV)/bin
STAMP := $(VENV)/.edgewise-installed
DEMO_STAMP := $(VENV)/.edgewise-demo
OUT ?= demo-output
WORKERS ?= 2
FUZZ ?= 20000
MODELS ?= 10000
START ?= 0
OLDEST := build/venv/oldest-$(VERSION)
NEWEST := build/venv/newest-$(VERSION)
PIP := -m pip --disable-pip-version-check

# One thread per process: the graphs are small, and several workers with many threads each only get in one another's way.
ONE_THREAD := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 NUMBA_NUM_THREADS=1

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all test-oldest test-newest fuzz fuzz-models pyg-suite lint docs docs-table bench release clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-11s %s\n", $$1, $$2}'

setup: $(STAMP) ## create .venv and install edgewise with every extra, and what tests, lint and docs need

# Runs again only when the dependencies change. A .venv that is already there is kept and completed. Groups need pip 25.1.
$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python $(PIP) install --quiet --upgrade "pip>=25.1"
	$(BIN)/python $(PIP) install --quiet --constraint constraints.txt --editable ".[all]" --group dev
	touch $@

# The demo needs a part of what the tests need; a .venv with everything serves it as well. Without numba nothing is compiled first.
$(DEMO_STAMP): pyproject.toml constraints.txt
	@echo "Setting up $(VENV) for the demo: torch, PyG and a few more. The first time this takes some minutes ..."
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	test -e $(STAMP) || $(BIN)/python $(PIP) install --constraint constraints.txt --editable ".[cli,plot,page]"
	touch $@

demo: $(DEMO_STAMP) ## train a small model, explain its nodes, write a page that says why: open demo-output/why.html
	$(ONE_THREAD) $(BIN)/edgewise demo --out $(OUT)

test: setup ## run the tests (without those marked slow)
	$(ONE_THREAD) $(BIN)/python -m pytest -n $(WORKERS) -m "not slow"

test-all: setup ## run every test
	$(ONE_THREAD) $(BIN)/python -m pytest -n $(WORKERS)

# Several gigabytes: but for one version, torch comes with CUDA. `make test-oldest PYTHON=python3.13` is another corner.
test-oldest: ## run the tests with the oldest versions that pyproject.toml promises
	test -x $(OLDEST)/bin/python || $(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/python $(PIP) install --quiet --upgrade "pip>=25.1"
	$(OLDEST)/bin/python $(PIP) install --quiet --constraint constraints-oldest.txt --editable ".[all]" --group test --group docs
	$(ONE_THREAD) $(OLDEST)/bin/python -m pytest -n $(WORKERS) -m "not slow"

test-newest: ## run the tests with the newest versions there are
	test -x $(NEWEST)/bin/python || $(PYTHON) -m venv $(NEWEST)
	$(NEWEST)/bin/python $(PIP) install --quiet --upgrade "pip>=25.1"
	$(NEWEST)/bin/python $(PIP) install --quiet --upgrade --upgrade-strategy eager --editable ".[all]" --group test --group docs
	$(ONE_THREAD) $(NEWEST)/bin/python -m pytest -n $(WORKERS) -m "not slow"

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

release: setup ## build the sdist and the wheel into dist/, and check what an index would show
	rm -rf dist
	$(BIN)/python $(PIP) install --quiet --constraint constraints.txt --group release
	$(BIN)/python -m build --outdir dist
	$(BIN)/python -m twine check --strict dist/*

clean: ## remove caches, build output and the demo's output; keep the environments
	find build -mindepth 1 -maxdepth 1 ! -name venv -exec rm -rf {} + 2>/dev/null || true
	rm -rf dist demo-output .pytest_cache .mypy_cache .ruff_cache .hypothesis src/*.egg-info
	find src tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
