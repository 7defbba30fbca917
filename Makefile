# Every target sets up what it needs: a virtual environment in .venv with the project and its tools.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PYTEST_WORKERS ?= auto

.DEFAULT_GOAL := help
.PHONY: help setup demo test check format pytest bench walks rules interop soak clean

help: ## show this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

setup: $(STAMP) ## create .venv with the project and its development tools

$(STAMP): pyproject.toml
	@echo "setting up $(VENV) with $(PYTHON) (needs a package registry) ..."
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed, this is " + sys.version.split()[0]) if sys.version_info < (3, 11) else None'
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable . --group dev
	@touch $(STAMP)

demo: $(STAMP) ## play a whole conversation with the server: prompt, plan, permission, kill -9, load, prompt again
	@$(BIN)/acp-server demo

test: check pytest ## everything CI runs: lint, types, all tests

check: $(STAMP) ## lint and type-check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

pytest: $(STAMP) ## run the tests, those of the server on memory and on JSONL
	$(BIN)/pytest -q -n $(PYTEST_WORKERS)
	ACP_TEST_STORE=jsonl $(BIN)/pytest -q -n $(PYTEST_WORKERS) tests/acp_server/bridge \
		tests/acp_server/turns tests/acp_server/agents tests/acp_server/models

format: $(STAMP) ## rewrite the code in the project's format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP) ## measure against the peers and print ratios; takes some minutes
	$(BIN)/python benchmarks/append_cost.py
	$(BIN)/python benchmarks/store_cost.py
	$(BIN)/python benchmarks/wire.py

walks: $(STAMP) ## count the calls on three ways through the code
	$(BIN)/python benchmarks/walks.py

rules: $(STAMP) ## write docs/spec/held.md: which test holds which rule
	$(BIN)/python tests/rules.py --write

interop: $(STAMP) ## drive the server with the TypeScript SDK and acpx (needs node and npm)
	PYTHON=$(abspath $(BIN)/python) sh interop/run.sh

soak: $(STAMP) ## long runs: rules broken one by one, random wire input, kills, power cuts
	$(BIN)/python tests/mutations/run.py
	ACP_SOAK=1 $(BIN)/pytest -q tests/acp_server/test_fuzz.py
	$(BIN)/python tests/soak/soak.py

clean: ## remove the environment and all caches
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis
