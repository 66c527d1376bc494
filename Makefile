# make demo   everything from an empty checkout to the main job running
# make test   everything from an empty checkout to the test results
# `make help` lists the rest. PYTHON=python3.12 chooses another interpreter.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
# The compiled modules, made again when their sources change; POCKETMQ_PURE_PYTHON=1 leaves them out.
ifndef POCKETMQ_PURE_PYTHON
COMPILED := $(VENV)/.compiled
endif
# As pip leaves a package that is not editable: without bytecode, which some environments forbid to
# write by the way, a broker needs twice the time to start.
COMPILE := $(BIN)/python -m compileall -q pocketmq
# With bytecode of the tests as well, whatever the environment says: otherwise each worker and each
# process that a test starts compiles all that it imports.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest
# Spark's workers must run the interpreter that holds the packages.
export PYSPARK_PYTHON := $(abspath $(BIN)/python)

# The inner loop: what starts neither Java nor a browser, kills nothing, and is over soon.
QUICK := tests/message tests/remoting tests/store/encoding tests/store/log tests/store/queue \
	tests/test_architecture.py tests/test_public_doors.py tests/test_compatibility.py
QUICK_MARKS := not interop and not crash and not spark and not browser

.DEFAULT_GOAL := help
.PHONY: help accelerator demo test quick fuzz sanitize dst lint format bench bench-full docs java chromium prometheus clean

help:
	@echo 'make demo     install into $(VENV) and run the main job: send, kill, pull, Spark SQL'
	@echo 'make test     install into $(VENV) and run every test (ARGS="-k store" chooses)'
	@echo 'make quick    the tests of codecs, stores and rules: a minute, for the inner loop'
	@echo 'make fuzz     property tests with many examples (FUZZ=tests/message chooses)'
	@echo 'make sanitize  test the compiled modules under AddressSanitizer and UBSan (Linux, gcc)'
	@echo 'make dst      simulate the whole cluster under faults, on every processor (SECONDS=7200: how long)'
	@echo 'make lint     ruff and mypy --strict'
	@echo 'make format   let ruff rewrite what it can'
	@echo 'make bench    measure against the official broker in turn (Java, Maven, Go)'
	@echo '              ARGS=--clients: our client and the Java client in turn'
	@echo 'make bench-full  everything that has an aim, an hour and a half; ARGS=--short: ten minutes'
	@echo 'make accelerator  compile its modules in place, as demo and test do, and fail if that fails'
	@echo 'make docs     build the API reference into build/docs, and check links and docstrings'
	@echo 'make clean    remove $(VENV) and caches'

demo: $(INSTALLED) $(COMPILED) java
	@$(BIN)/pocketmq --version
	$(BIN)/pocketmq demo

test: $(INSTALLED) $(COMPILED) java chromium prometheus
	$(PYTEST) -n 3 $(ARGS)

quick: $(INSTALLED) $(COMPILED)
	HYPOTHESIS_PROFILE=quick $(PYTEST) -q -n 2 -m '$(QUICK_MARKS)' $(QUICK) $(ARGS)

fuzz: $(INSTALLED) $(COMPILED)
	HYPOTHESIS_PROFILE=fuzz $(PYTEST) -n 2 --timeout 3600 -m 'hypothesis and $(QUICK_MARKS)' \
		$(FUZZ) $(ARGS)

# A copy of the checkout, whose modules end the process at the first access to memory that is not
# theirs. Everything that Python itself allocates is watched as well.
SANITIZED := build/sanitized
SANITIZE := -fsanitize=address,undefined -fno-sanitize-recover=undefined
SANITIZED_TESTS := tests/message/test_read_into.py tests/remoting/test_frame.py \
	tests/remoting/test_splitter.py tests/store/test_compiled_read.py tests/store/encoding \
	tests/store/log/test_compiled_blocks.py tests/store/scan/test_compiled_records.py \
	tests/broker/test_send_runs.py tests/broker/test_broken_frames.py
sanitize: $(INSTALLED)
	rm -rf $(SANITIZED) && mkdir -p $(SANITIZED)
	cp -R pyproject.toml scripts pocketmq tests $(SANITIZED)
	cd $(SANITIZED) && CFLAGS='$(SANITIZE) -O1' LDFLAGS='$(SANITIZE)' POCKETMQ_ACCELERATOR=1 \
		$(abspath $(BIN))/python scripts/build_accelerator.py > /dev/null
	cd $(SANITIZED) && LD_PRELOAD="$$(gcc -print-file-name=libasan.so)" PYTHONMALLOC=malloc \
		ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 POCKETMQ_ACCELERATOR=1 \
		HYPOTHESIS_PROFILE=sanitize $(abspath $(BIN))/python -m pytest -q --timeout 3600 -m '$(QUICK_MARKS)' \
		$(SANITIZED_TESTS) $(ARGS)

# Seeds of its own in each run. A failure prints the command that repeats it.
SECONDS ?= 600
dst: $(INSTALLED)
	$(BIN)/python -m tests.dst $$(date +%s)00000 --seeds 100000000 --cpu $(SECONDS) --double 50 \
		--processes $$(nproc) --go-on $(ARGS)

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(INSTALLED) $(COMPILED)
	@$(COMPILE)
	$(BIN)/python -m bench $(ARGS)

bench-full: $(INSTALLED) $(COMPILED)
	@$(COMPILE)
	$(BIN)/python -m bench.full $(ARGS)

accelerator: $(INSTALLED)
	POCKETMQ_PURE_PYTHON= POCKETMQ_ACCELERATOR=1 $(BIN)/python scripts/build_accelerator.py
	@touch $(VENV)/.compiled

docs: $(INSTALLED)
	$(BIN)/python -W ignore scripts/build_docs.py

# Spark needs a Java runtime of version 17 or newer.
java:
	@sh scripts/ensure-java.sh

# Tests of the dashboard drive a browser; without one they are skipped.
chromium:
	@sh scripts/ensure-chromium.sh

# Tests of metrics let it scrape, and try the alert rules; without it they are skipped.
prometheus:
	@sh scripts/ensure-prometheus.sh

$(INSTALLED): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo 'pocketmq needs Python 3.11 or newer; choose one with: make PYTHON=python3.12 ...'; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	@echo 'Installing (Spark is the largest part, a few minutes the first time) ...'
	@# What is compiled is made by its own rule.
	POCKETMQ_PURE_PYTHON=1 $(BIN)/python -m pip install --quiet --editable '.[test,lint]'
	@$(COMPILE)
	@touch $@

$(VENV)/.compiled: $(INSTALLED) scripts/build_accelerator.py $(shell find pocketmq -name '*.p[yx][xd]')
	@echo 'Compiling the accelerator ...'
	@$(BIN)/python scripts/build_accelerator.py > /dev/null
	@touch $@

clean:
	rm -rf $(VENV) .cache .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
