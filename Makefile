# Every target makes its own environment in .venv; nothing needs to be installed by hand.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test core accuracy table1 bench clean

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[test]'
	touch $@

demo: $(STAMP)         ## fit the private mixture to the Breast Cancer Wisconsin data
	$(BIN)/python -m dpem.experiments.demo

test: $(STAMP)         ## lint, types, rooms and every test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -n 2

core: $(STAMP)         ## tight against the paper's method from a given start, 20 repetitions
	$(BIN)/python -m dpem.experiments.core

accuracy: $(STAMP)     ## the accuracy table, 20 repetitions (about half an hour)
	$(BIN)/python -m dpem.experiments.accuracy --out results/accuracy.csv

table1: $(STAMP)       ## Breast Cancer Wisconsin as in the paper's Table 1, 50 splits
	$(BIN)/python -m dpem.experiments.breast_cancer --out results/breast_cancer.csv

bench: $(STAMP)        ## one EM iteration against BLAS a @ X
	$(BIN)/python benchmarks/iteration.py

clean:
	rm -rf $(VENV) build dist src/*.egg-info
