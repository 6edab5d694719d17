# Every target makes its own environment in .venv; nothing needs to be installed by hand.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DOCS := $(VENV)/.docs
DEMO := $(VENV)/.demo
STUDIES := $(VENV)/.studies

# The processes that tests start find the package compiled.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo planner test test-random test-torch coverage core accuracy reproduce peers bench bench-growth bench-parquet regression glm mixtures mixture-regressions classes calibration audit audit-dependencies docs clean

help:                  ## this list
	@awk -F ':[^#]*## ' '/^[a-z0-9-]+:.*## / {printf "make %-20s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[test]'
	touch $@

$(DEMO): pyproject.toml
	test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-compile --editable '.[demo]'
	touch $@

$(DOCS): $(STAMP)
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	touch $@

$(STUDIES): $(STAMP)
	$(BIN)/python -m pip install --quiet --editable '.[studies]'
	touch $@

demo: $(DEMO)          ## a private regression and latent classes on a table of real people, beside the same fits without privacy
	$(BIN)/dpem demo

planner: $(STAMP)      ## the planner's table of plans again, after a model's plans have changed
	$(BIN)/python -m studies.planner_grid

test: $(STAMP)         ## lint, types, import order and every test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

test-random: $(STAMP)  ## every test in a random order; the seed is printed
	$(BIN)/python -m pytest -n 2 -p randomly --randomly-dont-reset-seed

test-torch: $(STAMP)   ## what the tests of tables on devices and of their kernels add where PyTorch is
	$(BIN)/python -m pip install --quiet torch triton
	$(BIN)/python -m pytest tests/paper/test_engines.py tests/tables/test_device.py tests/queries/test_triton_sums.py

coverage: $(STAMP)     ## which lines the tests run, into build/coverage: for reading, not a gate
	$(BIN)/python -m pip install --quiet 'pytest-cov>=5'
	$(BIN)/python -m pytest -n 2 --cov=dpem --cov-branch --cov-report=html:build/coverage --cov-report=term:skip-covered

core: $(STAMP)         ## the improved against the published method from a given start, 20 repetitions
	$(BIN)/python -m studies.paper.core

accuracy: $(STAMP)     ## the accuracy table, 20 repetitions (about half an hour)
	$(BIN)/python -m studies.paper.accuracy --out results/accuracy.csv

reproduce: $(STAMP)    ## every figure and table of the paper, 50 repetitions
	$(BIN)/python -m studies.paper.reproduce all --reps 50 --out results
	$(BIN)/python -m studies.paper.reproduce.fill docs/reproduce.md

peers: $(STUDIES)      ## what one would use instead, on the same tables, in environments of their own (hours)
	$(BIN)/python -m studies.peers --reps 10 --out results/peers_real.csv
	$(BIN)/python -m studies.paper.peers --reps 10 --out results/peers.csv

bench: $(STAMP)        ## every figure that has a floor, in one table: wide, narrow, Dask, Parquet
	$(BIN)/python -m studies.benchmarks.table --out results/bench.csv

bench-growth: $(STAMP) ## how cost grows with rows, columns, sparsity and threads
	$(BIN)/python -m studies.benchmarks.growth --out results/growth.csv --plot results/growth.png

bench-parquet: $(STAMP) ## a 10 GB Parquet table against Arrow alone (needs 10 GB of disk)
	$(BIN)/python -m studies.benchmarks.parquet --gigabytes 10

regression: $(STUDIES) ## DPLinearRegression on real, wide and simulated tables, against its targets
	$(BIN)/python -m studies.linear_regression

glm: $(STUDIES)        ## logistic and Poisson regression: coverage, lost log-loss
	$(BIN)/python -m studies.glm

mixtures: $(STUDIES)   ## DPGaussianMixture beside scikit-learn, on simulated and real tables
	$(BIN)/python -m studies.gaussian_mixture --out results/gaussian_mixture.csv

mixture-regressions: $(STUDIES) ## DPMixtureRegression beside non-private EM
	rm -f results/mixture_regression.csv
	$(BIN)/python -m studies.mixture_regression targets 10
	$(BIN)/python -m studies.mixture_regression food 10
	$(BIN)/python -m studies.mixture_regression single 20
	$(BIN)/python -m studies.mixture_regression plan 4
	$(BIN)/python -m studies.mixture_regression coverage 170
	$(BIN)/python -m studies.mixture_regression tables

classes: $(STUDIES)    ## DPLatentClass beside non-private EM
	$(BIN)/python -m studies.latent_class --reps 10 --out results/latent_class.csv

calibration: $(STUDIES) ## intervals, warnings and predicted errors on every public table of R's packages (hours)
	$(BIN)/python -m studies.calibration.sweep --page results/calibration.md

audit: $(STAMP)        ## audits, planted bugs, faults and fuzzing, the long versions (under an hour on two cores)
	-$(BIN)/python -m pip install --quiet 'atheris>=3.0'  # the fuzzer steers by coverage where it has this
	$(BIN)/python -m studies.audits.campaign --out results
	$(BIN)/python -m studies.audits.table --out results
	$(BIN)/python -m studies.audits.faults --out results/audit_faults.json
	$(BIN)/python -m studies.audits.fuzz --minutes 8 --out results/audit_fuzz.json

audit-dependencies: $(STAMP) ## known vulnerabilities of what is installed, from a public database
	$(PYTHON) -m venv build/pip-audit
	build/pip-audit/bin/python -m pip install --quiet pip-audit
	$(BIN)/python -m pip list --format freeze --exclude-editable > build/installed.txt
	build/pip-audit/bin/pip-audit --strict --no-deps --disable-pip --requirement build/installed.txt

docs: $(DOCS)          ## the site, into build/site; warnings are errors
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs build/site
	@echo "open build/site/index.html"

clean:                 ## remove the environment and everything that was built
	rm -rf $(VENV) build dist src/*.egg-info
