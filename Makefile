# Two commands from a fresh clone on Linux with Python 3.11 to 3.13, no GPU needed:
#   make run    real streams from a real engine on this machine's CPU, then a table or the live view
#   make test   every test, the real engine's included
# Everything is installed into .venv; pip's settings (PIP_FIND_LINKS, PIP_EXTRA_INDEX_URL, PIP_CONSTRAINT, ...) apply.

SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c
.DELETE_ON_ERROR:
.SUFFIXES:
.DEFAULT_GOAL := help
.PHONY: help run test stop bench chaos evaluate lint format clean venv model

SUITS := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11; do \
	command -v $$python >/dev/null 2>&1 && \
	$$python -c '$(SUITS)' 2>/dev/null && \
	echo $$python && break; done)
VENV := .venv
BIN := $(VENV)/bin
PINS := engine/tokenflow/setup/requirements
PYTEST_ARGS ?=

help:
	@echo 'make run     burst of real streams on the CPU engine: table, or the live view on a terminal'
	@echo 'make test    all tests, the real engine included      (PYTEST_ARGS="tests/policy -q" for some)'
	@echo 'make stop    stop the engine and its daemon'
	@echo 'make bench   the measurements that the README quotes'
	@echo 'make chaos   500 random kills, restarts, tunes and stops under streams (hours; CYCLES=20 for fewer)'
	@echo 'make evaluate  the tables of docs/evaluation.md, simulated (half an hour; TABLES="ablations host" for some)'
	@echo 'make lint    ruff and mypy                            (make format repairs what ruff can)'
	@echo 'make clean   remove .venv and build files; the demo model stays in the cache folder'

run: model
	@$(BIN)/python -m tokenflow.loadgen.demo

test: model
	@echo '== all tests'
	@$(BIN)/python -m pytest $(PYTEST_ARGS)

stop:
	@if [ -x $(BIN)/tfctl ]; then $(BIN)/tfctl stop --daemon; else echo 'nothing is running: there is no $(VENV)'; fi

bench: model
	@for script in bench/*.py; do case $$script in */_*|*/chaos*) continue;; esac; \
		grep -q '__main__' $$script || continue; \
		echo "== $$script"; $(BIN)/python $$script || exit 1; done

chaos: model
	@$(BIN)/python bench/chaos.py --cycles $(or $(CYCLES),500)

evaluate: $(VENV)/.dev
	@$(BIN)/python tools/evaluate.py $(TABLES)

lint: $(VENV)/.dev
	@echo '== ruff check' && $(BIN)/ruff check .
	@echo '== ruff format --check' && $(BIN)/ruff format --check .
	@echo '== mypy' && $(BIN)/mypy

format: $(VENV)/.dev
	@$(BIN)/ruff check --fix . && $(BIN)/ruff format .

clean:
	@rm -rf $(VENV) .build dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis

venv: $(VENV)/.engine

# Says where the time goes and does nothing when everything is in place; damage to the model is repaired here.
model: $(VENV)/.engine
	@$(BIN)/python -m tokenflow.setup --quiet

# The engine's packages. A CUDA build of torch is refused before it is downloaded, with the way to the CPU build.
$(VENV)/.engine: $(VENV)/.dev $(PINS)/engine-cpu.txt $(PINS)/engine-cpu-no-deps.txt
	@echo '== the engine on the CPU (a few minutes the first time)'
	@$(BIN)/python -m tokenflow.setup
	@touch $@

# TokenFlow itself (editable), daemon, view and development tools.
$(VENV)/.dev: $(VENV)/.python $(PINS)/dev.txt pyproject.toml
	@echo '== TokenFlow, its daemon and view, and the development tools'
	@$(BIN)/python -m pip install --disable-pip-version-check --progress-bar off -r $(PINS)/dev.txt \
		| sed -u -n 's/^Collecting \([^ ]*\).*/   \1/p; s/^Installing collected.*/   installing/p'
	@$(BIN)/python -m pip install --disable-pip-version-check --quiet --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.python:
	@if ! '$(PYTHON)' -c '$(SUITS)' 2>/dev/null; then \
		echo "error: $(if $(PYTHON),$(PYTHON) is not a Python 3.11 to 3.13,no Python 3.11 to 3.13 was found); the engine needs one" >&2; \
		echo 'hint: install one of them, or name it: make run PYTHON=/path/to/python3.12' >&2; exit 78; fi
	@echo "== $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV) || { \
		echo 'hint: on Debian and Ubuntu the venv module is a package of its own: apt install python3-venv' >&2; exit 78; }
	@touch $@
