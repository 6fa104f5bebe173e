# Two commands are enough: `make demo` and `make test`. Both set up what they need.
# `SPARK=4.3` lets every target run on that Spark, in an environment of its own: `make proof SPARK=4.3`.
# `make test ARGS=tests/spark/test_keyed.py` runs these tests alone, `make proof PART=2 ARGS='-k word'` some of a part.
PYTHON ?= python3
SPARK ?=
SEED ?=
VENV ?= $(if $(SPARK),.venv-spark$(SPARK),.venv)
PINS := $(if $(SPARK),scripts/pins/spark-$(SPARK).txt)
export VENV
BIN := $(VENV)/bin
READY := $(VENV)/.ready
CLASSES := $(VENV)/.classes
ARGS ?=
# Tests that kill processes wait a lot: hence one worker more than two cores.
PYTEST := $(BIN)/pytest -n 3 --dist worksteal

.PHONY: demo test test-without-services proof fuzz mutants past-faults unit lint collected spark-4.3 classes services services-debian services-s3 services-s3a services-sparks services-cassandra services-hdfs services-yarn services-kafka services-image services-tikv services-clouds services-flink-state services-state-clients services-suites jar bench peers codes docs release output lock clean soak services-examiners services-tools examiners
.DEFAULT_GOAL := demo

demo: $(READY)  ## run the coffee shop to its end, kill included
	@$(BIN)/holdfast demo coffee-shop

# On files in memory where there is room: registries and ledgers flush at every row, and disks are slow at it.
test: $(READY) $(CLASSES)  ## every test that needs no heavy server, in its short form
	@ROOM_MB=14336 scripts/in_memory.sh $(PYTEST) $(ARGS)

test-without-services: $(READY) $(CLASSES)  ## the same as on a machine that has none of the services; needs root or user namespaces
	@scripts/without_services.sh $(BIN)/python $(PYTEST)

proof: $(READY) $(CLASSES)  ## every test in its long form, in parts with a report each; hours. One part: PART=2, SEED=… as before
	@seed=$(or $(SEED),$$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')); echo "property tests draw their examples with SEED=$$seed"; \
	failed=; for part in $(or $(PART),$$($(BIN)/python tests/support/proof_parts.py)); do \
	  files=$$($(BIN)/python tests/support/proof_parts.py $$part) || exit 2; \
	  HOLDFAST_GRID=all HOLDFAST_SEED=$$seed HOLDFAST_PROOF_PART=$$part $(PYTEST) $(ARGS) $$files || failed="$$failed $$part"; \
	done; [ -z "$$failed" ] || { echo "failed: parts$$failed; see docs/proof" >&2; exit 1; }

fuzz: $(READY)  ## fuzz every reader of bytes for MINUTES=…, and write docs/proof/fuzz.md
	@[ -d .fuzz/site ] || $(BIN)/uv pip install --quiet --no-deps --target .fuzz/site "atheris==3.0.0" || true
	@PYTHONPATH=$$PWD/.fuzz/site:$$PYTHONPATH $(BIN)/python tests/support/fuzz.py --minutes $(or $(MINUTES),5) $(if $(SEED),--seed $(SEED))

mutants: $(READY)  ## break the code in COUNT=… places drawn by SEED=…, and see which the quick tests miss
	@[ -d .mutants/site/coverage ] || $(BIN)/uv pip install --quiet --no-deps --target .mutants/site "coverage==7.10.7"
	@PYTHONPATH=.mutants/site:tests/support scripts/in_memory.sh $(BIN)/python tests/support/mutants.py --count $(or $(COUNT),100) --seed $(or $(SEED),49) $(ARGS)

past-faults: $(READY)  ## put ten faults of the past back, one by one, and see how long until the quick tests find each
	@PYTHONPATH=tests/support $(BIN)/python tests/support/past_faults.py
soak: $(READY)  ## run the bank under seeded faults for HOURS=… (fractions too), and write docs/proof/soak.md; SEED=…, FAULTS=… as before
	@PYTHONPATH=tests/support:tests/fault:tests/services:$$PYTHONPATH $(BIN)/python tests/support/soak.py --hours $(or $(HOURS),1) $(if $(SEED),--seed $(SEED)) $(if $(FAULTS),--faults $(FAULTS))
examiners: $(READY)  ## run the tests of other projects against Holdfast, and see docs/proof/examiners.md; ONLY=pyspark, stores, operators or histories
	@$(if $(filter histories,$(ONLY)),,scripts/services-examiners.sh $(firstword $(ONLY)) >/dev/null)
	@PYTHONPATH=tests/support:tests/services $(BIN)/python tests/examiners/examiners.py $(ONLY)

# Compiled modules stay, for the workers of tests and the processes that tests start.
unexport PYTHONDONTWRITEBYTECODE

# Verbs run within the process of the tests, but for a few, and on files in memory: under a minute on two cores.
unit: $(READY)  ## the quick tests that need neither a JVM nor a server, after every change
	@scripts/in_memory.sh $(BIN)/pytest -q -n 3 --dist worksteal -p no:schemathesis -m "not slow" tests/unit

lint: $(READY)  ## style, types and layers
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/basedpyright --pythonpath $(BIN)/python
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/lint-imports --no-cache --config import-rules.ini

collected: $(READY)  ## rewrite the assertions of all tests once, and not in each worker
	@$(BIN)/pytest -q --collect-only >/dev/null

spark-4.3:  ## an environment with Spark 4.3, for the test that CI runs on it
	@$(MAKE) --no-print-directory SPARK=4.3 VENV=.venv-spark4.3 .venv-spark4.3/.ready

classes: $(CLASSES)  ## let the JVMs of the tests start quicker; `make test` calls it

services: services-debian services-cassandra services-hdfs services-kafka services-s3 services-s3a services-state-clients services-suites  ## the servers that CI's tests start

services-debian:  ## install PostgreSQL, MariaDB, Redis, Chromium, promtool, zsh, fish and Flink's client (needs root, Debian)
	@scripts/services.sh

services-s3:  ## build the S3 gateway for the tests of object storage (needs Go, some minutes)
	@scripts/services-s3.sh

services-s3a:  ## fetch Hadoop's S3A, with which Spark reaches S3, for the test that counts its requests (needs Java and Maven)
	@scripts/services-s3a.sh

services-sparks: $(READY)  ## install PySpark 3.4 to 4.3 for the tests of their checkpoints (3 GB)
	@scripts/services-sparks.sh

services-cassandra: services-state-clients  ## fetch Cassandra for the tests of state in it (needs Java and Maven)
	@scripts/services-cassandra.sh

services-hdfs:  ## fetch HDFS for the tests of it (needs Java and Maven)
	@scripts/services-hdfs.sh

services-yarn: services-hdfs  ## fetch YARN for the test of jobs on it (needs Java and Maven)
	@scripts/services-yarn.sh

services-kafka:  ## fetch a Kafka broker for the tests of it (needs Java and Maven)
	@scripts/services-kafka.sh

services-image:  ## build the image of deploy/ for the tests of it, without a registry (needs root, Debian, some minutes)
	@scripts/services-image.sh

services-tikv:  ## build the test double of TiKV for the tests of it (needs Go, a minute)
	@scripts/services-tikv.sh

services-clouds:  ## the emulators of Google Cloud Storage and Azure, and Google's connector (400 MB; needs Go, Node, Java and Maven)
	@scripts/services-clouds.sh

services-flink-state: $(READY)  ## install PyFlink and Flink's reader of savepoints (700 MB; needs Java and Maven)
	@scripts/services-flink-state.sh

services-state-clients:  ## fetch the clients of Redis, Cassandra and TiKV for Spark (needs Java and Maven)
	@scripts/state-clients.sh

services-suites:  ## fetch Spark's own tests of its file managers (70 MB; needs Java and Maven)
	@scripts/services-suites.sh

services-examiners:  ## fetch the tests of other projects for `make examiners` (20 MB; needs git, Java and Maven)
	@scripts/services-examiners.sh

services-tools: $(READY)  ## install pre-commit, Airflow and Dagster, and build Helm, for the tests of Holdfast in them (1 GB; needs Go)
	@scripts/services-tools.sh

jar: $(READY)  ## build the jar of the state stores, which is committed (needs Java and Maven)
	@scripts/jar.sh $(BIN)/python

bench: $(READY)  ## the measurements of docs/measurements.md
	@$(BIN)/holdfast bench

peers: $(READY)  ## install the other engines of `holdfast bench peers`, each in an environment of its own (3 GB)
	@scripts/peers.sh

docs: $(READY)  ## write the generated reference pages, and build the site in build/site; a broken link is an error
	@PYTHONPATH=tests/support $(BIN)/python docs/generate.py
	@$(BIN)/python docs/website.py

release: $(READY)  ## build wheel, source distribution, bill of materials and checksums of the newest commit in dist
	@$(BIN)/python scripts/release.py

output: $(READY)  ## write what the verbs print to tests/golden, to be read and committed
	@PYTHONPATH=tests/support:tests $(BIN)/python tests/support/output_scenes.py
	@PYTHONPATH=tests/support:tests $(BIN)/python tests/support/live_scenes.py

codes: $(READY)  ## give each new error its code
	@$(BIN)/python scripts/error_codes.py
	@$(BIN)/ruff format -q src

lock: $(READY)  ## resolve the lock file anew
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.10 --generate-hashes --no-header \
	  --no-annotate --no-emit-index-url --extra all --group dev pyproject.toml -o requirements.lock

clean:
	rm -rf $(VENV) .holdfast .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

# Made once, and again whenever what it is made from changes.
$(READY): requirements.lock pyproject.toml scripts/setup.sh $(wildcard $(PINS))
	@scripts/setup.sh "$(PYTHON)" "$(VENV)" $(PINS)
	@touch $@

# Spark's classes as a JVM maps them: the many JVMs of the tests start in two thirds of the time.
$(CLASSES): $(READY)
	@$(BIN)/python -m holdfast.jobs.processes.class_training $(VENV)
	@touch $@
