# `make test` needs Python >= 3.10 with venv and pip, and a package index; it makes the rest itself.

PYTHON ?= python3
VENV   := .venv-test
BIN    ?= $(VENV)/bin
PYTEST_ARGS ?=
# A worker a core, each with one thread: models this small leave a second thread waiting.
WORKERS     ?= 2

pip = $(VENV)/bin/python -m pip --disable-pip-version-check

# Those with blocks that commands fill in.
PAGES       ?= README.md docs/auditing.md docs/families.md

# Of `make fuzz`, all parsers together. CI takes one.
MINUTES     ?= 5

.PHONY: help test test-all test-light check lint types tests fuzz fuzz-minute readme readme-write site \
	format install clean

help:
	@echo "make test          install the wheel of this checkout in $(VENV), then make check"
	@echo "make test-all      the same, with the tests that are marked slow"
	@echo "make test-light    the tests that need no torch, with what is installed in BIN=$(BIN)"
	@echo "make check         lint, types, tests, a minute of fuzzing and README with what is installed in BIN=$(BIN)"
	@echo "make fuzz          try odd inputs on every parser for MINUTES=$(MINUTES)"
	@echo "make format        let ruff format and fix what it can"
	@echo "make readme-write  put the real output of their commands into README.md and docs/"
	@echo "make site          the documentation as a site in build/site (mkdocs)"

test: install
	@HEADCOUNT_TEST_INSTALLED=1 $(MAKE) --no-print-directory check

test-all: install
	@HEADCOUNT_TEST_INSTALLED=1 $(MAKE) --no-print-directory check PYTEST_ARGS='-m ""'

check: lint types tests fuzz-minute readme site

lint:
	@echo "== ruff"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@echo "== import-linter"
	@$(BIN)/lint-imports --no-cache

types:
	@echo "== mypy"
	@$(BIN)/mypy
	@$(BIN)/mypy --explicit-package-bases $(wildcard tools/*.py bench/*.py)

# The script and not `python -m pytest`, which would put the root, and so `audit`, on sys.path.
tests:
	@echo "== pytest"
	@$(BIN)/pytest -n $(WORKERS) --dist worksteal $(PYTEST_ARGS)

test-light:
	@HEADCOUNT_TEST_LIGHT=1 $(BIN)/pytest -n $(WORKERS) --dist worksteal \
		-m "not slow and not needs_convert" $(PYTEST_ARGS)

# With atheris (pip install atheris: Linux, x86-64) guided by coverage, else by hypothesis.
fuzz:
	@echo "== fuzzing for $(MINUTES) minutes"
	@$(BIN)/python tools/fuzz.py --minutes $(MINUTES) --jobs $(WORKERS)

fuzz-minute:
	@HEADCOUNT_FUZZ_SEED=1 $(MAKE) --no-print-directory fuzz MINUTES=1 \
		|| echo "A finding is old more often than new: mend it, and keep its input in the corpus."

readme:
	@echo "== README"
	@for page in $(PAGES); do $(BIN)/python tools/readme_blocks.py --check $$page || exit 1; done

readme-write:
	@for page in $(PAGES); do $(BIN)/python tools/readme_blocks.py --write $$page || exit 1; done

site:
	@echo "== mkdocs"
	@$(BIN)/mkdocs build --quiet --strict

format:
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

# The package is rebuilt each time: build/lib keeps modules that the tree no longer has.
install: $(VENV)/ready
	@echo "== installing the wheel of this checkout"
	@rm -rf build/lib build/bdist.* $(VENV)/wheel
	@$(pip) wheel -qq --no-deps --no-build-isolation --wheel-dir $(VENV)/wheel .
	@$(pip) install -qq --no-deps --no-index --force-reinstall $(VENV)/wheel/*.whl

# Always with the constraints: an open range for torch can take a build of several GB.
$(VENV)/ready: pyproject.toml constraints.txt
	@echo "== installing what the tests need (minutes on the first run)"
	@test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	@rm -rf $(VENV)/wheel
	@$(pip) install -qq -c constraints.txt setuptools
	@$(pip) wheel -qq --no-deps --no-build-isolation --wheel-dir $(VENV)/wheel .
	@$(pip) install -qq -c constraints.txt "$$(ls $(VENV)/wheel/*.whl)[convert,test]"
	@touch $@

clean:
	rm -rf build dist *.egg-info $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis
