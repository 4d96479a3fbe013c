# Needs make and Python 3.11 or newer; uv is used where it is installed. Everything else goes into .venv.
#   make demo       the digits network on a modelled Zen 4: accuracy against speed, in digits.png
#   make test       ruff, then mypy and pytest beside each other
#   make test-all   the slow sweeps too, and properties on many more random examples
#   make bench      speed of the engines on this machine
#   make notebooks  execute the lessons (notebooks/*.ipynb) and store what they show
#   make pictures   draw docs/images again, each from the table beside it
#   make docs       the site of docs/, notebooks and docstrings, in build/docs; warnings are errors
#   make clean      remove everything that the above created

SHELL := /bin/bash
VENV := .venv
BIN := $(VENV)/bin
UV := $(shell command -v uv 2>/dev/null)
# Modules are compiled when they are first imported, not all at the install: most never are.
INSTALL = $(if $(UV),$(UV) pip install --quiet --python $(BIN)/python,$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check)

.PHONY: demo test test-all lint typecheck pytest bench notebooks pictures docs clean
.DELETE_ON_ERROR:

demo: $(VENV)/.installed
	$(BIN)/simdnn run digits --machine zen4 --plot digits.png

test: lint
	$(MAKE) --no-print-directory --jobs=2 typecheck pytest

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .

typecheck: $(VENV)/.installed-dev
	$(BIN)/mypy

# Each worker gets neighbouring tests, which share fixtures and caches, and takes over others' when it is through.
# Many tests start a process: all read the bytecode that the first has written, whatever the environment says of it.
PYTEST = PYTHONDONTWRITEBYTECODE= PYTHONPYCACHEPREFIX=$(CURDIR)/$(VENV)/bytecode $(BIN)/python -m pytest -n auto --dist worksteal

pytest: $(VENV)/.installed-dev
	$(PYTEST) -m "not sweep"

test-all: lint typecheck
	$(PYTEST) --hypothesis-profile=thorough

bench: $(VENV)/.installed-dev
	$(BIN)/python -m benchmarks

notebooks: $(VENV)/.installed-dev
	$(BIN)/python -m tests.test_notebooks

pictures: $(VENV)/.installed-dev
	$(BIN)/python tools/draw_pictures.py

docs: $(VENV)/.installed-docs
	$(BIN)/python -m sphinx -b html -c docs -E -W --keep-going -q . build/docs
	@echo "build/docs/index.html"

clean:
	rm -rf $(VENV) build dist digits.png .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The installs are editable: only a change of pyproject.toml asks for another one.
$(VENV)/.installed: pyproject.toml | $(BIN)/python
	$(INSTALL) --editable '.[parquet]'
	touch $@

$(VENV)/.installed-dev: pyproject.toml | $(BIN)/python
	$(INSTALL) --editable '.[dev]'
	touch $@ $(VENV)/.installed

$(VENV)/.installed-docs: pyproject.toml | $(BIN)/python
	$(INSTALL) --editable '.[docs]'
	touch $@ $(VENV)/.installed

# A command may be on the path and still not run (version managers), so each candidate is tried.
$(BIN)/python:
ifneq ($(UV),)
	$(UV) venv --quiet --python '>=3.11' $(VENV)
else
	@for python in python3.11 python3.12 python3.13 python3.14 python3.15 python3 python; do \
	    if $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	        echo "$$python -m venv $(VENV)"; exec $$python -m venv $(VENV); \
	    fi; \
	done; echo "simdnn needs Python 3.11 or newer; none was found on the path" >&2; exit 1
endif
