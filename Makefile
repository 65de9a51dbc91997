# The commands of this repository. Each target installs its own dependencies.

PYTHON ?= python3.11
VENV   := .venv
BIN    := $(VENV)/bin

comma := ,

# uv installs in seconds where pip takes minutes; pip is the fallback if uv cannot be installed.
install = test -x $(BIN)/python || $(PYTHON) -m venv $(VENV); \
	{ $(BIN)/python -m pip install --quiet --disable-pip-version-check uv && \
	  $(BIN)/uv pip install --quiet --python $(BIN)/python --editable '$(1)'; } || \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '$(1)'

.PHONY: help setup serve aws test quick e2e lint bench sim proof mutants synth deploy image clean

help:
	@echo "make serve   run Riacho at http://127.0.0.1:8080 (ARGS='--port 9000 ...')"
	@echo "make aws     the same on a local S3 and DynamoDB (ON=localstack, ON=minio: in docker)"
	@echo "make test    the whole suite          make lint    format, style, types, dangerous calls"
	@echo "make quick   tests that need neither servers nor Spark, for the inner loop"
	@echo "make e2e     black-box tests on any local AWS (RIACHO_TEST_AWS=seaweedfs+ministack ...)"
	@echo "make bench   side-by-side figures     make sim     seeded faults (SEEDS=200, MINUTES=60)"
	@echo "make proof   full disks, flipped bits, power cuts, crowds, drivers of Spark that die"
	@echo "             (PART=torture,trials,spark,tidying,kafka,connect,fuzz,properties,sim)"
	@echo "make mutants do the tests notice what is wrong? (ARGS='storage/head/head.py ...')"
	@echo "make synth   what AWS would run, into cdk.out (SET='zones=a,b,c ...'); make deploy"
	@echo "make setup   .venv with everything    make clean   remove what was made"

setup: $(VENV)/.all

$(VENV)/.base: pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "Riacho needs $(PYTHON); PYTHON=... names another"; exit 1; }
	$(call install,.[security$(comma)schemas$(comma)connect])
	@touch $@

$(VENV)/.dev: $(VENV)/.base
	$(call install,.[dev])
	@touch $@

$(VENV)/.all: $(VENV)/.dev
	$(call install,.[all])
	@touch $@

$(VENV)/.bench: $(VENV)/.all
	$(call install,.[bench])
	@touch $@

$(VENV)/.infra: $(VENV)/.base
	$(call install,.[infra])
	@touch $@

serve: $(VENV)/.base
	$(BIN)/riacho serve $(ARGS)

aws: $(VENV)/.dev
	localstack/run $(ARGS)

# A file stays with one worker, and those that take longest come first (tests/conftest.py).
# More than the two cores that CI has: half of the tests wait for processes or for time to pass.
JOBS ?= 3

test: $(VENV)/.all
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder --durations=10 $(ARGS)

# For the inner loop: neither servers nor Spark.
QUICK := tests/storage tests/checker tests/test_tidy.py \
	$(addprefix tests/service/,log limits http groups transactions controller)

quick: $(VENV)/.all
	$(BIN)/python -m pytest -q -n 2 --dist worksteal -m 'not slow and not aws' $(or $(ARGS),$(QUICK))

# RIACHO_TEST_AWS=seaweedfs+ministack make e2e: on another local AWS; localstack/README.md has all.
e2e: $(VENV)/.all
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile -m 'aws and not slow' $(ARGS) \
		$(addprefix tests/integration/test_,http_contract.py two_gateways.py transactions.py groups.py)

lint: $(VENV)/.all
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/bandit --quiet --recursive --severity-level medium \
		--configfile pyproject.toml riacho service storage lambdas infra

bench: $(VENV)/.bench
	$(BIN)/python -m benchmarks $(ARGS)

sim: $(VENV)/.dev
	$(BIN)/python -m tests.simulation $(if $(SEEDS),--seeds $(SEEDS)) $(if $(MINUTES),--minutes $(MINUTES)) \
		$(if $(FIRST),--first $(FIRST)) $(ARGS)

# PART=torture,trials,spark,tidying,kafka,connect,fuzz,properties,sim (default: all, some three hours).
# MINUTES is for sim.
proof: $(VENV)/.all
	$(BIN)/python -m tests.torture --part '$(PART)' --minutes $(or $(MINUTES),30) $(ARGS)

# Takes hours for everything; docs/reliability.md has the figures.
mutants: $(VENV)/.dev
	$(BIN)/python -m tests.mutants $(ARGS)

# docs/deploy.md has the parameters. Neither docker nor an account is needed.
synth: $(VENV)/.infra
	$(BIN)/python -m infra $(SET)

# The CDK's own command line, on the node that the CDK runs on.
deploy: synth
	$(BIN)/python -m infra.node_runtime aws-cdk@2 deploy --app cdk.out $(ARGS)

image:
	docker build --tag riacho $(ARGS) .

clean:
	rm -rf cdk.out $(VENV) build *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
