# make demo   run Fed-LSVI against learning alone, print a table, write plots and a report
# make test   lint, types, import order and all tests
# make docs   the documentation as a site, build/docs/index.html
# make links  whether links of the documentation that lead elsewhere are answered
# make dist   wheel and sdist in build/dist, checked, and tried in an empty environment
# Everything runs in .venv, which the first call sets up.

PYTHON ?= python3
CONSTRAINTS ?= constraints.txt
VENV := .venv
BIN := $(VENV)/bin
LIGHT := $(VENV)/light
STAMP := $(VENV)/installed
DIST := build/dist
# Python compiles what it imports; to compile all of every package would double the time of the install
INSTALL := $(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -c $(CONSTRAINTS)
# One test each needs PyTorch, which is large, and Open Bandit Pipeline: installed only if CI is set;
# otherwise they are skipped
EXTRAS = dev$(if $(CI),$(comma)torch$(comma)obp)
comma := ,
# Tests start hundreds of processes: without bytecode files each would parse the package again
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test lint docs links dist programs bench study clean

demo: $(LIGHT)
	$(BIN)/fedlsvi demo

# While one core runs the linters, the other compiles to bytecode what three workers would otherwise
# compile at the same time. More workers than cores: FLARE and Ray wait more than they compute
test: $(STAMP) programs
	$(BIN)/python -m pytest --collect-only -qq >/dev/null & $(MAKE) --no-print-directory lint && wait
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder -rs

docs: $(STAMP)
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs build/docs
	@echo build/docs/index.html

links: $(STAMP)
	$(BIN)/python -m sphinx -q -b linkcheck docs build/links

# The wheel is built from the sdist, so a file missing from either is noticed here.
dist: $(LIGHT)
	$(INSTALL) -e '.[release]'
	rm -rf $(DIST)
	PIP_CONSTRAINT=constraints.txt $(BIN)/python -m build --outdir $(DIST)
	$(BIN)/twine check --strict $(DIST)/*
	PYTHON=$(PYTHON) bash .ci/try-wheel $(DIST)/*.whl

# Some tests look at pages in Chromium, have Prometheus read metrics or systemd check units, which pip
# cannot install: installed here if CI is set, by sudo where needed; otherwise those tests are skipped.
# What could not be installed is named by the tests that fail
programs:
	@if [ -n "$(CI)" ]; then [ "$$(id -u)" = 0 ] || root="sudo -n"; \
	  for program in chromium prometheus systemd; do command -v $$program >/dev/null || \
	  { $$root apt-get update -qq && $$root env DEBIAN_FRONTEND=noninteractive \
	  apt-get install -qq -y --no-install-recommends $$program >/dev/null; }; done; fi || true

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(STAMP)
	$(BIN)/python -m benchmarks

study: $(STAMP)
	$(BIN)/python -m studies.defaults

$(BIN)/python:
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "Python 3.11 or newer is needed"'
	$(PYTHON) -m venv $(VENV)

$(LIGHT): pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) -e '.[plot]'
	touch $@

$(STAMP): pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) -e '.[$(EXTRAS)]'
	touch $@ $(LIGHT)

clean:
	rm -rf $(VENV) build
