# `make help` lists the commands.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PYTEST_WORKERS ?= 3
export PYTEST_WORKERS
unexport PYTHONDONTWRITEBYTECODE  # otherwise each process that a test starts compiles Toril again
PARALLEL := --numprocesses $(PYTEST_WORKERS) --dist worksteal
NODE := tests/interop/node

.DEFAULT_GOAL := help

.PHONY: help
help: ## List the commands
	@grep -hE '^[a-z-]+:.*?## ' $(MAKEFILE_LIST) | awk -F ':.*?## ' '{printf "  make %-14s %s\n", $$1, $$2}'

$(BIN)/.installed: pyproject.toml requirements-dev.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed; $(PYTHON) is $$($(PYTHON) -V 2>&1). Set PYTHON=python3.11."; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' || \
		{ echo "Python's venv module is missing: as root, run  apt-get install python3-venv"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes --requirement requirements-dev.txt
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

.PHONY: setup
setup: $(BIN)/.installed ## Create .venv and install everything that is pinned

.PHONY: demo
demo: setup ## Watch a small demo shop process jobs for ten seconds
	@$(BIN)/toril demo

.PHONY: example
example: setup ## Watch the helpdesk example at work for a few seconds; on Redis with TORIL_URL=redis://…
	@cd examples && ../$(BIN)/python -m helpdesk

.PHONY: servers
servers: ## Install the servers that the tests start: redis-server, PostgreSQL, Chromium
	@PATH="$$PATH:$$(echo /usr/lib/postgresql/*/bin | tr ' ' ':')"; missing=""; \
	command -v redis-server > /dev/null || missing="$$missing redis-server"; \
	command -v postgres > /dev/null || missing="$$missing postgresql"; \
	command -v chromium > /dev/null || missing="$$missing chromium"; \
	test -z "$$missing" || \
		{ test "$$(id -u)" = 0 && command -v apt-get > /dev/null && apt-get update -qq && \
			DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing > /dev/null; } || \
		{ echo "missing: as root, run  apt-get install$$missing"; exit 1; }

$(NODE)/node_modules/.installed: $(NODE)/package.json $(NODE)/package-lock.json
	@node -e 'process.exit(Number(parseInt(process.versions.node) < 20))' 2> /dev/null || \
		{ echo "Node 20 or newer is needed for the tests with BullMQ and pyright: install it from nodejs.org, or your system's nodejs."; exit 1; }
	@command -v npm > /dev/null || { echo "npm is missing: as root, run  apt-get install npm"; exit 1; }
	cd $(NODE) && npm ci --ignore-scripts --loglevel=error
	@touch $@

.PHONY: node
node: $(NODE)/node_modules/.installed ## Install what the tests need on Node: BullMQ and pyright

.PHONY: test
test: setup servers node lint types ## What a change needs to be green: lint, types, and the tests of every layer
	@$(BIN)/python -m tools.gate --new
	@$(BIN)/python -m tools.suite quick; code=$$?; $(BIN)/python -m tools.gate || code=1; exit $$code

.PHONY: test-all
test-all: setup servers node ## The other tests, in stages: every kind of Redis, real processes, planted bugs, all of interop. STAGES="stores interop" runs some
	@$(BIN)/python -m tools.gate --new
	@$(BIN)/python -m tools.suite $(STAGES); code=$$?; $(BIN)/python -m tools.gate || code=1; exit $$code

.PHONY: test-pythons
test-pythons: setup servers ## Unit, conformance and worker tests on newer Pythons, if installed. PYTHONS=3.13 requires that one
	@$(BIN)/python -m tools.pythons $(PYTHONS)

# What the gate runs, and how much: about 20 minutes on two quiet cores.
GATE := TORIL_SIM_SEEDS=400 TORIL_SIM_CROWDS=200 TORIL_SIM_REPLAYS=20 TORIL_MACHINE_EXAMPLES=200 TORIL_HTTP_FUZZ=20000 \
	TORIL_TORTURE_MINUTES=3 TORIL_TORTURE_JOBS=15500 TORIL_TORTURE_EVERY=1 TORIL_POWER_CUTS=10 TORIL_INTEROP_KILLS=12
PROOFS := tests/sim tests/torture tests/conformance/test_crash_points.py tests/conformance/test_machine.py \
	tests/faults/test_power.py tests/faults/test_supervisor.py tests/faults/test_redis_trouble.py \
	tests/interop/test_fleet.py tests/web/test_fuzz.py tests/web/test_schema.py

# What readers are told about a run. It is published whether it kept the promises or not.
SAID = $(if $(NOTE),--note "$$NOTE") $(if $(REMARK),--remark "$$REMARK")
export NOTE REMARK

.PHONY: gate
gate: setup servers node ## Measure the figures T1 to T15 at full size, and write docs/reliability.md and .proof/gate.json
	@$(BIN)/python -m tools.gate --new
	$(GATE) $(BIN)/pytest --quiet $(PARALLEL) $(PROOFS); code=$$?; $(BIN)/python -m tests.sim.planted || code=1; \
		$(BIN)/python -m tools.gate || code=1; $(BIN)/python -m tools.proofs gate --code $$code $(SAID) && exit $$code

.PHONY: planted
planted: setup servers ## Search for every planted bug with known and new seeds, and write docs/reliability.md. TORIL_BLIND=word chooses the new seeds
	@$(BIN)/python -m tools.gate --new
	$(BIN)/pytest --quiet $(PARALLEL) tests/sim/test_mutants.py; code=$$?; $(BIN)/python -m tests.sim.planted || code=1; \
		$(BIN)/python -m tools.gate || code=1; $(BIN)/python -m tools.proofs planted --code $$code $(SAID) && exit $$code

.PHONY: lint
lint: setup ## Check style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

.PHONY: types
types: setup ## Check static types
	$(BIN)/mypy

.PHONY: format
format: setup ## Format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.PHONY: capabilities
capabilities: setup ## Write docs/capabilities.md, and the catalogue in docs/reliability.md, from the marks on the tests
	$(BIN)/python -m tools.capabilities --write
	$(BIN)/python -m tools.catalogue --write

.PHONY: dist
dist: setup ## Build wheel and sdist in dist/, and check them in a fresh environment
	rm -rf dist
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(BIN)/python -m build --quiet --no-isolation
	$(BIN)/python -m tools.release dist

.PHONY: sbom
sbom: setup ## List what a release is built from, as CycloneDX JSON
	$(BIN)/python -m tools.sbom > sbom.json

.PHONY: pins
pins: ## Update requirements-dev.txt after you changed a version in it: its dependencies and all hashes. Needs uv
	@command -v uv > /dev/null || { echo "uv is missing: run  pip install uv"; exit 1; }
	sed -n 's/^\([A-Za-z0-9._-]*==[^\]*\).*/\1/p' requirements-dev.txt > requirements-dev.in
	uv pip compile --quiet --universal --python-version 3.11.2 --generate-hashes --no-annotate --no-header \
		requirements-dev.in > requirements-dev.new || { rm requirements-dev.in requirements-dev.new; exit 1; }
	{ grep '^#' requirements-dev.txt; cat requirements-dev.new; } > requirements-dev.in
	mv requirements-dev.in requirements-dev.txt && rm requirements-dev.new

.PHONY: sync
sync: setup ## Write src/toril/sync.py from the async classes
	$(BIN)/python -m tools.blocking --write

.PHONY: reference
reference: setup ## Write docs/cli.md from the commands
	$(BIN)/python -m tools.commands --write

.PHONY: words
words: setup ## Write tests/words/strings.txt: all errors, log lines, help texts and labels, for review
	$(BIN)/python -m tools.words --write

.PHONY: docs
docs: setup ## Build the documentation in site/; a broken link fails the build
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

TORIL_SOAK_MINUTES ?= 60

.PHONY: screenshots
screenshots: setup servers ## Take the screenshots of the dashboard for the docs
	$(BIN)/python -m tools.screenshots

.PHONY: soak
soak: setup servers node ## The long run: torture and the simulator for TORIL_SOAK_MINUTES, published in docs/reliability.md; then all of interop
	TORIL_SOAK_MINUTES=$(TORIL_SOAK_MINUTES) $(BIN)/python -m tools.soak; code=$$?; \
		$(BIN)/python -m tools.proofs soak --code $$code $(SAID) && exit $$code
	TORIL_INTEROP_ALL=1 TORIL_INTEROP_KILLS=10 $(BIN)/pytest --quiet --numprocesses $(PYTEST_WORKERS) tests/interop

.PHONY: bench
bench: setup servers ## Measure Toril and other systems, about 15 minutes; a part with PEERS=toril,huey CASES=drain-100,latency ROUNDS=3
	$(BIN)/python -m bench $(if $(PEERS),--peers $(PEERS)) $(if $(CASES),--cases $(CASES)) $(if $(ROUNDS),--rounds $(ROUNDS))

.PHONY: bench-quick
bench-quick: setup servers ## Measure the main figures and the closest systems, about 2 minutes
	$(BIN)/python -m bench --quick

.PHONY: clean
clean: ## Remove everything that was built
	rm -rf $(VENV) .pythons $(NODE)/node_modules .bench build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis
