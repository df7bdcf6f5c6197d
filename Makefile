# Everything runs in .venv, which is made on first use and reused while both pyproject.toml and constraints.txt stand still.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
PYTEST := $(abspath $(BIN))/python -m pytest -n 2 --dist=worksteal

.PHONY: bench-networks help demo test test-all test-extra lint format types imports docs hooks bench reproduce clean

help: ## say what each command does
	@grep -hE '^[a-z-]+:.*## ' Makefile | sed -E 's/:.*## /\t/' | expand -t 12

$(VENV)/.run: pyproject.toml constraints.txt
	@echo "Setting up $(VENV) (a few minutes the first time: torch is large) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(INSTALL) -e '.[report]'
	@touch $@

$(VENV)/.reproduction: $(VENV)/.run reproduction/pyproject.toml
	@echo "Adding the reproduction of the paper to $(VENV) ..."
	@$(INSTALL) -e . -e ./reproduction
	@touch $@

$(VENV)/.dev: $(VENV)/.reproduction
	@echo "Adding the development tools to $(VENV) ..."
	@$(INSTALL) -e '.[dev]'
	@touch $@

$(VENV)/.crosscheck: $(VENV)/.dev requirements/crosscheck.txt
	@echo "Adding the libraries to compare with to $(VENV) ..."
	@$(INSTALL) -e '.[dev,crosscheck]'
	@$(INSTALL) --no-deps -r requirements/crosscheck.txt
	@touch $@

$(VENV)/.docs: $(VENV)/.dev
	@echo "Adding what the documentation site needs to $(VENV) ..."
	@$(INSTALL) -e '.[dev,docs]'
	@touch $@

demo: $(VENV)/.run ## set up, train two small classifiers, judge them, and write laplacebridge-demo/report.html
	@$(BIN)/laplacebridge demo --force

test: $(VENV)/.dev ## set up and pass every test that needs nothing beyond the repository and its packages
	@echo "Running the tests on two processes ..."
	@$(PYTEST) -m "not data and not crosscheck and not slow"
	@echo "Running the tests of the reproduction ..."
	@cd reproduction && $(PYTEST) -m "not data and not slow"

test-all: test test-extra ## both

test-extra: $(VENV)/.crosscheck ## slow tests, comparisons with other libraries, and real data (LAPLACEBRIDGE_DATA)
	@echo "Running the rest; data from LAPLACEBRIDGE_DATA=$${LAPLACEBRIDGE_DATA:-(not set)} ..."
	@$(PYTEST) -m "data or crosscheck or slow"
	@cd reproduction && $(PYTEST) -m "data or slow"

lint: $(VENV)/.dev types imports ## style, docstrings, types and the import contract
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

format: $(VENV)/.dev ## rewrite the code in the project's style
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

types: $(VENV)/.dev
	@$(BIN)/mypy

imports: $(VENV)/.dev
	@$(BIN)/lint-imports

docs: $(VENV)/.docs ## build the documentation site into site/, strictly and without a network
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --clean  # with --quiet it would not count its warnings
	@echo "Built site/. Open site/index.html; to search it, serve it: $(BIN)/python -m http.server -d site"

hooks: $(VENV)/.dev ## check style, types and imports before every commit
	@$(INSTALL) 'pre-commit>=4'
	@$(BIN)/pre-commit install

bench: $(VENV)/.crosscheck ## measure speed and accuracy, rewriting benchmarks/results
	@for name in bridge accuracy intervals prediction fit scaling sets import network laplace_torch export; do \
	  $(BIN)/python benchmarks/bench_$$name.py || exit 1; done
	@for name in accuracy readme intervals benchmarks; do $(BIN)/python benchmarks/render_$$name.py || exit 1; done

bench-networks: $(VENV)/.crosscheck ## measure calibration and detection on real networks; needs LAPLACEBRIDGE_DATA
	@for name in calibration detection; do \
	  $(BIN)/python benchmarks/bench_$$name.py && $(BIN)/python benchmarks/render_$$name.py || exit 1; done

reproduce: $(VENV)/.reproduction ## compute the paper's tables and figures again, two hours, rewriting docs/reproduction
	@$(BIN)/laplacebridge reproduce all -o docs/reproduction --format png --force
	@$(BIN)/python -m laplacebridge_reproduction.authors docs/reproduction docs/authors.md

clean: ## remove the virtual environment and caches
	rm -rf $(VENV) site .pytest_cache reproduction/.pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
