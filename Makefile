# On Linux, PyPI's torch brings CUDA. For the CPU build:
#   make setup PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# pip also obeys this in the isolated environment where it builds the package
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help setup demo test slow torture bench format docs wheel clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## make .venv with the pinned dependencies (again only when they change)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "rbprune needs Python 3.11 or newer; run make PYTHON=python3.11 ...")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -e '.[dev,vision]'
	touch $(STAMP)

demo: setup ## train, prune and fine-tune a small network; ends in runs/demo/report.html
	$(BIN)/rbprune demo --out runs/demo

test: setup ## lint, format check, types, tests (all that CI runs)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	OMP_NUM_THREADS=1 $(BIN)/pytest -m "not slow" -n auto

slow: setup ## the tests that take minutes or need real data
	$(BIN)/pytest -m "slow and not torture"

torture: setup ## kill 70 runs, damage 2,000 files, read 10,000 bad ones of each kind, cut 300 networks, make 10,000 steps (hours)
	OMP_NUM_THREADS=1 $(BIN)/pytest -m torture -s tests/torture

bench: setup ## measure: training beside a plain loop, what noise costs, the channel graph
	@set -e; for name in step graph throughput precision export; do \
	  echo "benchmarks/$$name.py"; $(BIN)/python "benchmarks/$$name.py"; done

format: setup ## format, and repair what can be repaired
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: setup ## build the site into site/ (open site/index.html)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

wheel: setup ## build dist/*.whl and dist/*.tar.gz
	$(BIN)/python -m build

clean: ## remove .venv, builds and caches; runs/ stays
	rm -rf $(VENV) dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
