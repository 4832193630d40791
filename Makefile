# make demo   run Fed-LSVI against learning alone, print a table, write plots and a report
# make test   lint, types, import order and all tests
# Everything happens in .venv, which the first call sets up.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LIGHT := $(VENV)/light
STAMP := $(VENV)/installed
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
# PyTorch is large, and one test needs it: installed where CI is set, else that test says it is skipped
EXTRAS = dev$(if $(CI),$(comma)torch)
comma := ,

.PHONY: demo test lint bench study clean

demo: $(LIGHT)
	$(BIN)/fedlsvi demo

test: lint
	$(BIN)/python -m pytest -n 2 --dist loadscope -rs

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(STAMP)
	$(BIN)/python -m benchmarks

study: $(STAMP)
	$(BIN)/python -m fedlsvi.experiments.studies.defaults

$(LIGHT): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "Python 3.11 or newer is needed"'
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) -e '.[plot]'
	touch $@

$(STAMP): $(LIGHT)
	$(INSTALL) -e '.[$(EXTRAS)]'
	touch $@

clean:
	rm -rf $(VENV) runs
