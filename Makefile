# Everything runs in .venv, which the first command builds from requirements.lock. `make help` lists the targets.
#   make test ARGS="-k late"    pass arguments to the tool behind a target
#   make demo FILE=notes.txt    review your own file
#   make PYTHON=/path/python    build .venv with this interpreter (3.11 or later)

.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
PY := .venv/bin/python
PYTHON ?=
ARGS ?=
FILE ?=

.PHONY: help venv demo test test-more further environments collected stress check format lint floors types fix tidy model sim chaos bench bench-peers docs docs-site site-environment animation conformance
.PHONY: lock build clean conformance-check mutations mutations-check docs-check lock-check

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' Makefile

venv: ## build or renew .venv; every target does so by itself
	@python=$$(PYTHON='$(PYTHON)' sh tools/python.sh) && "$$python" tools/bootstrap.py

demo: venv ## watch agents continue after their worker is killed; FILE=... reviews your own text
	@$(PY) -m examples.newsroom.demo $(if $(FILE),"$(FILE)")

test: venv ## run the tests that take less than three seconds each; needs no service
	@$(PY) -m pytest -n 3 --dist worksteal --durations 20 -m "not more and not long" $(ARGS)

test-more: venv further site-environment ## run the slower tests: killed processes, chaos, mutants, PostgreSQL 16, later Pythons
	@$(PY) -m pytest -n 3 --dist worksteal --durations 20 -m "more and not long" $(ARGS)

further: venv ## run the quick half of the tests on every later Python that is found
	@$(PY) -m tools.further $(ARGS)

environments: ## build or renew the environments of every later Python that is found
	@python=$$(PYTHON='$(PYTHON)' sh tools/python.sh) && "$$python" -m tools.further --make

collected: venv ## collect the tests once: the processes of `make test` then find compiled modules, and do not compile all at once
	@$(PY) -m pytest --collect-only -qq | tail -n 1

stress: venv ## run each test several times in many processes, to find races; ARGS=tests/reach REPEAT=10
	@$(PY) -m pytest -n 6 -p tools.repeat -p no:tests.time_limit -m "not more and not long" $(or $(ARGS),tests/runtime)

check: venv format lint floors types conformance-check mutations-check docs-check lock-check ## check format, lint, imports, types, generated pages and locks

format: venv
	@$(PY) -m ruff format --check .

lint: venv ## run ruff; pyproject.toml has a reason beside each exception
	@$(PY) -m ruff check .

floors: venv ## check which package may import which
	@.venv/bin/lint-imports --no-logo

types: venv ## run mypy --strict
	@$(PY) -m mypy

conformance-check: venv
	@$(PY) -m tools.conformance --check

mutations-check: venv
	@$(PY) -m tools.mutations --check

docs-check: venv
	@$(PY) -m tools.docs --check

lock-check: venv
	@$(PY) -m tools.lock --check

fix: venv ## format, and fix lint errors where ruff can
	@$(PY) -m ruff check --fix .
	@$(PY) -m ruff format .

tidy: venv ## report files over 400 lines and functions over 60
	@$(PY) -m tools.tidy

model: venv ## check the kernel's rules in every reachable state
	@$(PY) -m model $(ARGS)

sim: venv ## run the runtime under seeded faults, in memory and on PostgreSQL
	@$(PY) -m heliograph.cli.main sim run --seeds 2000 $(ARGS)
	@$(PY) -m heliograph.cli.main sim run --backend postgres --seeds 200 $(ARGS)
	@$(PY) -m heliograph.cli.main sim run --hooks --seeds 500 $(ARGS)
	@$(PY) -m heliograph.cli.main sim run --hooks --backend postgres --seeds 60 $(ARGS)
	@$(PY) -m heliograph.cli.main sim run --sessions --seeds 500 $(ARGS)
	@$(PY) -m heliograph.cli.main sim run --sessions --backend postgres --seeds 60 $(ARGS)

chaos: venv ## kill, freeze and disconnect real processes, PostgreSQL and NATS; ARGS="--gate nightly --seed 2"
	@$(PY) -m tests.journeys.chaos $(ARGS)

bench: venv ## measure speed beside plain SQL and, after `make bench-peers`, beside other systems
	@$(PY) -m bench $(ARGS)

bench-peers: ## build or renew .venv-bench with the systems that `make bench` compares with
	@python=$$(PYTHON='$(PYTHON)' sh tools/python.sh) && "$$python" tools/bootstrap.py bench

docs-site: venv site-environment ## build the documentation site into build/site; it needs no network
	@$(PY) -m tools.docs_site $(ARGS)

animation: venv ## record the session of README.md again, and draw it
	@$(PY) -m tools.animation --record

site-environment: ## build or renew .venv-site with the generator of the documentation site
	@python=$$(PYTHON='$(PYTHON)' sh tools/python.sh) && "$$python" tools/bootstrap.py site

docs: venv conformance ## regenerate the generated pages and parts of pages
	@$(PY) -m tools.docs
	@$(PY) -m tools.diagrams

conformance: venv ## regenerate docs/internals/conformance: the requirements and the tests that prove them
	@$(PY) -m tools.conformance

mutations: venv ## remove the behaviour of each proven requirement, and expect its tests to fail; ARGS="--sample 20 --seed 3"
	@$(PY) -m tools.mutations $(ARGS)

lock: venv ## resolve both locks again; ARGS=--upgrade updates every pin
	@$(PY) -m tools.lock $(ARGS)

build: venv ## build wheel and sdist into dist/
	@$(PY) -m hatchling build

clean: ## remove the environments, caches and dist/, but not the data in .heliograph/
	rm -rf .venv .venv-bench .venv-site .venv-3.* dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
