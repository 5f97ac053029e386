# The front door: everything from a clone, in a virtual environment of its own.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: all smoke test lint install clean

all: install
	"$(BIN)/snakemake" all

smoke: install
	"$(BIN)/python" -m artifact doctor
	"$(BIN)/snakemake" smoke

test: install
	"$(BIN)/python" -m pytest -q tests

lint: install
	"$(BIN)/ruff" check .
	"$(BIN)/ruff" format --check .
	"$(BIN)/snakefmt" --no-sort --check Snakefile artifact/workflow/rules
	"$(BIN)/mypy"
	"$(BIN)/snakemake" --lint

install: $(STAMP)

$(STAMP): requirements.lock
	test -x "$(BIN)/python" || "$(PYTHON)" -m venv "$(VENV)"
	"$(BIN)/python" -m pip install --quiet --disable-pip-version-check -r requirements.lock
	touch "$(STAMP)"

clean:
	rm -rf results .snakemake
