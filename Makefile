# Two commands matter: `make demo` and `make test`. Either sets everything up first; run twice, they
# do only what is missing.
#
#   make setup       install what is missing, .venv, engine, images
#   make demo        record the example batch against the rehearsal provider  (OUT=dir to choose where)
#   make test        the tests            make test-long   with the soaks and whole matrices
#   make check       types and lint       make bench       ratios, printed
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.NOTPARALLEL:

PYTHON := .venv/bin/python
TESTS ?= tests

.PHONY: setup tools test-tools engine images demo test test-long check format bench screenshots clean

LIBRARIES := recorder/report/vendor/plot.js

setup: tools .venv/ready $(LIBRARIES) engine images

tools:
	@bash recorder/engine/install.sh </dev/null

.venv/ready: tests/requirements.lock pyproject.toml | tools
	@echo "setup: .venv"
	@[ -x $(PYTHON) ] || python3 -m venv .venv
	@$(PYTHON) -m pip install -qq --disable-pip-version-check --no-input --no-deps \
	    --require-hashes -r tests/requirements.lock </dev/null
	@$(PYTHON) -m pip install -qq --disable-pip-version-check --no-input --no-deps \
	    --no-build-isolation --no-index --editable . </dev/null
	@touch $@

# The report's charting library, inlined into every report and taken along by the images.
$(LIBRARIES): recorder/report/package-lock.json | .venv/ready
	@$(PYTHON) -m recorder.report.libraries

# A browser for the report, and the public tools that verify a batch.
test-tools: tools
	@bash tests/tools.sh </dev/null

engine: .venv/ready
	@host=$$($(PYTHON) -m recorder.engine start) && echo "setup: engine at $$host"

images: engine $(LIBRARIES)
	@$(PYTHON) -m recorder.images

demo: setup
	@out="$(OUT)"; [ -n "$$out" ] || out=$$(mktemp -d /var/tmp/recorder-demo.XXXXXX); \
	    .venv/bin/recorder batch run examples/batch.yaml --rehearse examples/rehearsal.yaml --out "$$out"

test: setup test-tools
	@$(PYTHON) -m pytest -m "not slow and not bench" $(TESTS)

test-long: setup test-tools
	@RECORDER_EXAMPLES=new $(PYTHON) -m pytest -m "not bench" $(TESTS)

# Every bench runs, also after one that missed its floor; the exit status is then not 0.
bench: setup
	@status=0; for bench in tests/bench/*_bench.py; do \
	    echo "== $$bench"; $(PYTHON) "$$bench" || status=1; done; exit $$status

# The pictures of the README, of a batch that is recorded for them (or of OUT).
screenshots: setup test-tools
	@out="$(OUT)"; [ -n "$$out" ] || { out=$$(mktemp -d /var/tmp/recorder-demo.XXXXXX)/example; \
	    .venv/bin/recorder batch run examples/batch.yaml --out "$$out"; }; \
	    $(PYTHON) -m tests.report.screenshots "$$out" docs/pictures

check: .venv/ready
	@.venv/bin/mypy
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .

format: .venv/ready
	@.venv/bin/ruff check --fix .
	@.venv/bin/ruff format .

# What set-up made in this directory; the engine and its images stay.
clean:
	@rm -rf .venv .build .mypy_cache .ruff_cache .pytest_cache .hypothesis
