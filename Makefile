# Everything runs in .venv, which the first command makes from requirements.lock. `make help` lists the rest.
#   make test ARGS="-k late"    arguments for the tool behind a target
#   make demo FILE=notes.txt    the newsroom works on your own file
#   make PYTHON=/path/python    build .venv with this interpreter (3.11 or later)

.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
PY := .venv/bin/python
PYTHON ?=
ARGS ?=
FILE ?=

.PHONY: help venv demo test test-more further stress check format lint floors types fix tidy model sim chaos bench bench-peers docs conformance
.PHONY: lock build clean conformance-check mutations mutations-check docs-check lock-check

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' Makefile

venv: ## make or renew .venv (every target does so by itself)
	@python=$$(PYTHON='$(PYTHON)' sh tools/python.sh) && "$$python" tools/bootstrap.py

demo: venv ## watch agents work, be killed, and go on; FILE=... for your own text
	@$(PY) -m examples.newsroom.demo $(if $(FILE),"$(FILE)")

test: venv ## the tests that take less than three seconds each; needs no service
	@$(PY) -m pytest -n 2 --dist worksteal --durations 20 -m "not more and not long" $(ARGS)

test-more: venv further ## processes that are killed, chaos, mutants, PostgreSQL 16, further Pythons
	@$(PY) -m pytest -n 2 --dist worksteal --durations 20 -m "more and not long" $(ARGS)

further: venv ## the quick half of the tests on every further Python from 3.11 on that is found
	@$(PY) -m tools.further $(ARGS)

stress: venv ## each test several times on many processes, to find what depends on luck; ARGS=tests/reach REPEAT=10
	@$(PY) -m pytest -n 6 -p tools.repeat -p no:tests.time_limit -m "not more and not long" $(or $(ARGS),tests/runtime)

check: venv format lint floors types conformance-check mutations-check docs-check lock-check ## format, lint, floors, types, generated pages, lock; under a minute

format: venv
	@$(PY) -m ruff format --check .

lint: venv ## ruff, with a reason beside each exception in pyproject.toml
	@$(PY) -m ruff check .

floors: venv ## who may import whom
	@.venv/bin/lint-imports --no-logo

types: venv ## mypy --strict
	@$(PY) -m mypy

conformance-check: venv
	@$(PY) -m tools.conformance --check

mutations-check: venv
	@$(PY) -m tools.mutations --check

docs-check: venv
	@$(PY) -m tools.docs --check

lock-check: venv
	@$(PY) -m tools.lock --check

fix: venv ## format, and let ruff repair what it can
	@$(PY) -m ruff check --fix .
	@$(PY) -m ruff format .

tidy: venv ## files over 400 lines, functions over 60: reported, never refused
	@$(PY) -m tools.tidy

model: venv ## check the kernel's rules on every reachable state
	@$(PY) -m model $(ARGS)

sim: venv ## run the runtime under seeded faults: in memory, then on PostgreSQL
	@$(PY) -m heliograph.cli.main sim run --seeds 2000 $(ARGS)
	@$(PY) -m heliograph.cli.main sim run --backend postgres --seeds 200 $(ARGS)

chaos: venv ## kill, freeze, cut off and crash real processes, PostgreSQL and NATS; ARGS="--gate nightly --seed 2"
	@$(PY) -m tests.journeys.chaos $(ARGS)

bench: venv ## measure beside the floor and, after `make bench-peers`, beside the peers; results name machine and commit
	@$(PY) -m bench $(ARGS)

bench-peers: ## make or renew .venv-bench: the systems that users would pick instead, pinned and hashed
	@python=$$(PYTHON='$(PYTHON)' sh tools/python.sh) && "$$python" tools/bootstrap.py bench

docs: venv conformance ## write the generated pages again, and what is generated within others
	@$(PY) -m tools.docs

conformance: venv ## docs/internals/conformance: which tests prove which requirement
	@$(PY) -m tools.conformance

mutations: venv ## remove the behaviour of each proven requirement, and see its tests fail; ARGS="--sample 20 --seed 3"
	@$(PY) -m tools.mutations $(ARGS)

lock: venv ## resolve both locks again; ARGS=--upgrade moves every pin
	@$(PY) -m tools.lock $(ARGS)

build: venv ## wheel and sdist into dist/
	@$(PY) -m hatchling build

clean: ## remove the environments, caches and dist/; data in .heliograph/ stays
	rm -rf .venv .venv-bench .venv-3.* dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
