# Targets for people and CI. The first run of a target installs what it needs, in this folder only.

PYTHON_BIN := .venv/bin/python
# Many tests wait for processes, so more workers than a small machine has cores are faster.
WORKERS ?= 5

.DEFAULT_GOAL := help
.PHONY: help demo test soak fuzz conformance check fmt bench schema docs site picture screenshot lock clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' Makefile

demo: ## show in half a minute what Switchboard does
	@scripts/setup core
	@$(PYTHON_BIN) examples/demo.py

test: ## all checks and all tests, with real servers (ARGS="-k name" goes to pytest)
	@scripts/setup dev pythons servers npm conformance browser hosts nginx redis postgres tmux bubblewrap
	@scripts/check
	@WORKERS=$(WORKERS) scripts/test $(ARGS)

soak: ## the long tests: the parts before a release, or one (ARGS=crashes, floods, fuzz, hosts, conformance, upgrade, all)
	@scripts/setup dev servers npm conformance browser hosts nginx redis postgres tmux bubblewrap
	@WORKERS=$(WORKERS) scripts/soak $(ARGS)

fuzz: ## random inputs from hosts, children, files, Redis and HTTP, for 10 minutes (ARGS=SECONDS)
	@scripts/setup dev redis
	@$(PYTHON_BIN) -m tests.fuzz.driver $(ARGS)

conformance: ## the official conformance suite (ARGS=--through, through Switchboard; ARGS=--help, more)
	@scripts/setup dev conformance
	@$(PYTHON_BIN) tests/conformance/run.py $(ARGS)

check: ## lint, format, types, package layers, language, pages, budgets, schema and locks
	@scripts/setup dev
	@scripts/check

fmt: ## format the code and fix what can be fixed
	@scripts/setup dev
	@$(PYTHON_BIN) -m ruff check --fix-only --quiet .
	@$(PYTHON_BIN) -m ruff format .

bench: ## compare Switchboard with the alternatives
	@scripts/setup bench redis
	@$(PYTHON_BIN) -m bench $(ARGS)

schema: ## regenerate src/switchboard_mcp/schemas
	@scripts/setup core
	@$(PYTHON_BIN) scripts/schemas.py

docs: ## regenerate docs/reference and the code map from the code
	@scripts/setup core
	@$(PYTHON_BIN) scripts/reference.py

site: ## build the documentation site in build/site
	@scripts/setup dev
	@.venv/bin/mkdocs build --strict && echo "The site is in build/site"

screenshot: ## take pictures of all pages of the dashboard, light and dark
	@scripts/setup dev browser
	@$(PYTHON_BIN) scripts/screenshot.py

picture: ## draw docs/picture.svg from what the demo prints
	@scripts/setup core
	@$(PYTHON_BIN) scripts/picture.py

lock: ## regenerate the lock files (ARGS=--upgrade for newer versions)
	@scripts/setup dev
	@scripts/lock $(ARGS)

clean: ## remove everything that setup, tests and builds made
	@rm -rf .venv .venv-debian .venv-newest .venv-servers tests/npm/node_modules tests/browser/apps/node_modules tests/conformance/npm-*/node_modules tests/hosts/npm/node_modules \
	  .setup.log .setup.lock dist build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
