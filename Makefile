# One word each. `make help` lists them. Everything is installed into .venv from hash-locked requirements.

.DEFAULT_GOAL := help
.PHONY: help demo test behaviour needs rewritten quick test-pythons test-long test-faults test-examples test-screens test-lanes lint types format bad-weather hiccups hostile soak day cluster compose truth arm64 audit bench bench-readers pictures lock clean

VENV := .venv
RUN := $(VENV)/bin/
LOCKS := deploy/requirements
# Images of containers often forbid it; then each of the hundreds of processes that tests start compiles all its sources again.
unexport PYTHONDONTWRITEBYTECODE
PYTHONS := python3.12 python3.13
BENCHES := $(patsubst tests/bench/bench_%.py,bench-%,$(wildcard tests/bench/bench_*.py))

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' Makefile
	@echo "  make bench-NAME one benchmark: $(patsubst bench-%,%,$(BENCHES))"

demo: $(VENV)/installed-demo ## start the whole system on this machine; Ctrl-C stops it
	@exec $(RUN)edgewake up --data ./data

# In this order: types are checked while one processor makes archives of classes, and seldom beside the tests, which need both.
test: $(VENV)/installed-test ## install what tests need, then check style, types and behaviour
	@$(MAKE) --no-print-directory --jobs=2 needs lint rewritten types behaviour

# As a batch: a process that wakes up interrupts no other one. Forty processes that share two processors otherwise spend a tenth of their time on
# filling caches again.
BATCH = $(shell chrt --batch 0 true 2>/dev/null && echo chrt --batch 0)
# Six processes share the test files: services take seconds to start and to end, and a test waits for them a third of its time.
behaviour: $(VENV)/installed-test needs rewritten
	$(BATCH) $(RUN)pytest -n 6 --dist loadfile --no-loadscope-reorder

needs: $(VENV)/installed-test ## install what tests need beyond Python
	@$(RUN)python -m tests.needs

# pytest rewrites the assertions of a file that is new or was changed: done once here, and not by each of the processes.
rewritten: build/rewritten
build/rewritten: $(VENV)/installed-test $(shell find tests -name '*.py')
	@$(RUN)pytest --collect-only -qq >/dev/null 2>&1 || true
	@mkdir -p build && touch $@

# Tests of the log wait for the disk thousands of times: here their folders are in memory, where 1 GB of it is free for files.
MEMORY = $(shell test "$$(df --output=avail /dev/shm 2>/dev/null | tail -n 1)" -gt 1000000 2>/dev/null && echo --tmpdir=/dev/shm)
quick: $(VENV)/installed-test needs rewritten ## test everything that starts no service, in about a minute
	@folder=$$(mktemp --directory $(MEMORY)) && trap 'rm -rf "$$folder"' EXIT && \
	EDGEWAKE_QUICK=1 $(RUN)pytest -q -n 4 --dist worksteal -m "not services and not long" --basetemp="$$folder/tests"

test-pythons: $(VENV)/installed-test needs ## the same as quick with the other Pythons that are found; PYTHONS names them
	@sh tests/pythons.sh $(PYTHONS)

test-long: $(VENV)/installed-test needs rewritten ## test what `make test` leaves out for its length: whole days, more kills and cuts, controls
	$(BATCH) $(RUN)pytest -n 4 --dist loadfile --no-loadscope-reorder -m long

FAULTS := $(addprefix tests/edge/log/test_,damage.py faults.py image.py starvation.py) tests/edge/uplink/test_bad_wire.py tests/bridge/test_killed_transactions.py
test-faults: $(VENV)/installed-test ## test every fault of the log: each page, truncation, 300 flipped bits, kill -9 at each system call, a failing disk, power loss, out of memory, images, a held log, bad wires, and a Kafka killed in its transactions
	@EDGEWAKE_FAULTS=all $(RUN)pytest -q -n 2 -m "" $(FAULTS)

test-examples: $(VENV)/installed-test ## test every property of hypothesis with thirty times the examples of `make test`
	@EDGEWAKE_EXAMPLES=5 $(RUN)pytest -q -n 2 -m "hypothesis and not services"

SCREENS := tests/ops/screens tests/ops/test_boards.py tests/ops/alerts/test_alert_screens.py tests/page/test_live.py
test-screens: $(VENV)/installed-test ## test that pages are accessible and fit their windows, in every theme at every width
	@EDGEWAKE_SCREENS=all $(RUN)pytest -q -n 2 --dist loadfile -m "" $(SCREENS)

LANES := tests/analysis/spark/test_code_generation.py tests/analysis/schedule/test_slow.py
test-lanes: $(VENV)/installed-test ## test compiled and interpreted batches, and slow queries, in every kind of lane
	@EDGEWAKE_LANES=all $(RUN)pytest -q -m "" $(LANES)

lint: $(VENV)/installed-test ## check style, and that the generated parts of the documents are up to date
	$(RUN)ruff format --check .
	$(RUN)ruff check .
	$(RUN)python -m tests.java_lint
	$(RUN)python docs/generate.py --check

types: $(VENV)/installed-test ## check types
	$(RUN)mypy
	$(RUN)mypy tests/analysis

format: $(VENV)/installed-test ## put the code into shape
	$(RUN)ruff check --fix .
	$(RUN)ruff format .

bad-weather: $(VENV)/installed-test ## the story with dead bridges, a storm of clients, a lying device and 20,000 devices; prints the ledger's verdict
	@$(RUN)python -m tests.story.bad_weather

hiccups: $(VENV)/installed-test ## each part and service killed, frozen, cut off, fenced and without disk, under load: a table of how long all takes to come back (an hour); CELLS="'kafka frozen' lake" for some
	@$(RUN)python -m tests.hiccups.table --cells $(CELLS)

hostile: $(VENV)/installed-test ## all attacks and their controls against the production broker; prints what each victim saw: latency before and beside it, lost, twice, wrong
	@$(RUN)pytest -q -m "" tests/hostile

SECONDS := 3600
soak: $(VENV)/installed-test ## an hour of the story with a kill every five minutes; SECONDS=120 for a short one; prints files, memory, lag, verdict
	@$(RUN)python -m tests.story.soak --seconds $(SECONDS)

DAY := 600
day: $(VENV)/installed-test ## a day of 300 mixed devices in ten minutes, with outages, kills, jumping clocks and firmware that changes a type; DAY=120 for a short one; prints an oracle's verdict
	@$(RUN)python -m tests.day --seconds $(DAY)

cluster: $(VENV)/installed-test ## compute on a Spark cluster of two workers over a Kafka with passwords, kill a worker and the driver, compare with a batch
	EDGEWAKE_CLUSTER=1 $(RUN)pytest -q -k cluster tests/analysis/test_secure_kafka.py

compose: $(VENV)/installed-test ## run deploy/compose.yaml on a Docker engine: all healthy, each Kafka killed, the ledger's verdict
	EDGEWAKE_COMPOSE=1 $(RUN)pytest -q -s -rs tests/compose

READINGS := 30000
truth: $(VENV)/installed-test ## compute recorded sets in three orders, with kills and repairs, and compare with the files; READINGS=n of each
	EDGEWAKE_TRUTH=$(READINGS) $(RUN)pytest -q -s -m "" tests/analysis/test_truth.py tests/analysis/test_truth_sets.py tests/analysis/test_full_speed.py

bench: $(VENV)/installed-test ## run all benchmarks, write docs/benchmarks.md
	@$(RUN)python -m tests.bench.report

READERS := sse sockets polls own_device rights filters snapshot deliveries
RUNS := 3
# Seconds of one of them: one that hangs keeps no other from being measured.
BENCH_S := 1500
bench-readers: $(VENV)/installed-test ## what readers cost, by each protocol, and rivals beside: RUNS=n; the page is build/bench-readers/readers.md
	@rm -rf build/bench-readers; failed=; for name in $(READERS); do echo "$$name, load average $$(cut -d' ' -f1 /proc/loadavg)"; \
	timeout --foreground -s INT -k 60 $(BENCH_S) $(RUN)python -m tests.bench.bench_$$name --runs $(RUNS) --json build/bench-readers/$$name.json || failed="$$failed $$name"; done; \
	$(RUN)python -m tests.bench.readers.summary build/bench-readers $(READERS); \
	test -z "$$failed" || { echo "failed:$$failed"; exit 1; }

bench-%: $(VENV)/installed-test
	@$(RUN)python -m tests.bench.bench_$*

MINUTES := 6
pictures: $(VENV)/installed-test ## take the pictures of all pages from a system that it starts; MINUTES=n that it runs before, NAMES="clients trace" for some
	@$(RUN)python docs/pictures.py --minutes $(MINUTES) $(NAMES)

arm64: $(VENV)/installed-test ## check that every locked requirement of a device has a wheel for 64-bit ARM
	@sh deploy/arm64.sh $(RUN)python

audit: $(VENV)/installed-test ## look for advisories and licences of all that is locked, write a bill of materials; OFFLINE=yes asks nobody
	@$(RUN)python -m edgewake.deploy.audit $(if $(OFFLINE),--offline)

lock: $(VENV)/installed-test ## resolve all requirements again and lock them with hashes
	@sh deploy/lock.sh

clean: ## remove what was installed and built; ./data stays
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis tests/js/node_modules

$(VENV)/installed-%: $(LOCKS)/%.txt $(LOCKS)/build.txt pyproject.toml deploy/install.sh
	@sh deploy/install.sh $(VENV) $*
