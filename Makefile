# stream_ext: `make demo` shows it, `make check` tests it; `make help` lists the rest.

EXTENSION = stream_ext
EXTVERSION = 0.2.0
MODULE_big = stream_ext
SOURCES := $(sort $(wildcard src/*.c src/*/*.c))
OBJS := $(SOURCES:.c=.o)
INSTALL_PARTS := $(sort $(wildcard sql/install/*.sql))
UPDATES = $(patsubst sql/update/%,sql/$(EXTENSION)--%,$(wildcard sql/update/*.sql))
DATA = $(filter-out $(UPDATES),$(wildcard sql/stream_ext--*--*.sql))
DATA_built = sql/$(EXTENSION)--$(EXTVERSION).sql $(UPDATES)
DOCS = $(wildcard doc/*.md doc/*.svg)

PG_CPPFLAGS = -I$(CURDIR)/src -DSTREAM_VERSION='"$(EXTVERSION)"' $(shell pkg-config --cflags rdkafka 2>/dev/null)
PG_CFLAGS = -Wall -Wextra -Wno-unused-parameter -Wno-sign-compare -Wno-missing-field-initializers
# Schema registries are asked through libcurl, where it is; WITHOUT_CURL=1 builds as if it were not.
ifeq ($(WITHOUT_CURL)$(shell pkg-config --exists libcurl 2>/dev/null && echo there),there)
PG_CPPFLAGS += -DSTREAM_CURL $(shell pkg-config --cflags libcurl)
CURL_LINK = $(shell pkg-config --libs libcurl)
endif
SHLIB_LINK = $(CURL_LINK) -lrdkafka -lz -lpthread -Wl,--version-script=$(CURDIR)/src/exports.map
EXTRA_CLEAN = build

# Crash points for tests (src/util/failpoint.h); never in an installed library.
ifdef FAILPOINTS
PG_CPPFLAGS += -DSTREAM_FAILPOINTS
endif
ifdef WERROR
PG_CFLAGS += -Werror
endif

# These prepare everything by themselves, below build/, on a machine that has none of it yet.
ALONE := help deps demo check check-regress check-isolation check-tap check-conformance check-property check-layers check-kafka check-mutants check-versions check-release check-sanitize check-valgrind soak report bench bench-peers fuzz lint format
.PHONY: $(ALONE)

# PostgreSQL's own build rules make `all`, `install`, `uninstall` and `clean`.
ifneq ($(filter-out $(ALONE),$(or $(MAKECMDGOALS),all)),)
PG_CONFIG ?= $(firstword $(wildcard /usr/lib/postgresql/15/bin/pg_config) pg_config)
PGXS := $(shell $(PG_CONFIG) --pgxs 2>/dev/null)
ifneq ($(wildcard $(PGXS)),)
include $(PGXS)
docmoduledir := $(EXTENSION)
MONITORING_DIR = $(DESTDIR)$(docdir)/$(docmoduledir)/monitoring
install: install-monitoring
install-monitoring: installdirs
	$(MKDIR_P) '$(MONITORING_DIR)'
	$(INSTALL_DATA) $(wildcard doc/monitoring/*) '$(MONITORING_DIR)'
uninstall: uninstall-monitoring
uninstall-monitoring:
	rm -rf '$(MONITORING_DIR)'
.PHONY: install-monitoring uninstall-monitoring
else
all install:
	@echo "$(PG_CONFIG) is missing or has no development files: 'make deps' installs them" >&2; exit 1
clean:
	rm -rf build
endif

# Every object sees every header: the tree is small, a stale object costs more.
$(OBJS): $(wildcard src/*.h src/*/*.h)

sql/$(EXTENSION)--$(EXTVERSION).sql: $(INSTALL_PARTS)
	cat $(INSTALL_PARTS) > $@

# An update script takes over whole parts of the install script: @PART@ (sql/update).
sql/$(EXTENSION)--%.sql: sql/update/%.sql $(INSTALL_PARTS)
	awk '/^@.*@$$/ { part = "sql/install/" substr($$0, 2, length - 2); while ((getline line < part) > 0) { sub(/^CREATE VIEW/, "CREATE OR REPLACE VIEW", line); print line }; next } { print }' $< > $@
endif

# What clang's static analyzer thinks of every source: to be read, not obeyed (it does not know that ereport(ERROR) never returns).
analyze: $(SOURCES:.c=.analyzed)
%.analyzed: %.c
	$(CLANG) --analyze -Xclang -analyzer-output=text -std=gnu99 $(CPPFLAGS) $<
.PHONY: analyze

# Helper programs of the tests.
include $(wildcard test/lib/*.mk)

HARNESS = PG_CONFIG="$(PG_CONFIG)" WERROR="$(WERROR)" TESTS="$(TESTS)" test/lib/harness

help:
	@echo 'make demo               see it work: fraud alerts and sales per minute, from a broker it starts itself'
	@echo 'make check              all tests, on a private copy of PostgreSQL'
	@echo 'make check-regress      one suite; also -isolation -tap -conformance -property -layers. TESTS="a b" picks tests'
	@echo 'make check-kafka        the tests that want a real Kafka broker (fetches one)'
	@echo 'make soak               ten thousand batches: memory flat, logs and state bounded'
	@echo 'make report             what stream.report_html shows, as a page and as a picture (wants chromium)'
	@echo 'make check-sanitize     regress tests with UBSan; check-valgrind: some of them under valgrind'
	@echo 'make check-mutants      classic bugs put in one at a time: the tests must catch each. TESTS="a b" picks bugs'
	@echo 'make check-versions     the suites on PostgreSQL 15 to 18, each in a root below build/ (as root; Debian). VERSIONS="17 18" picks'
	@echo 'make check-release      from the last release to this tree, with its queries and their state (builds it from the history of the repository)'
	@echo 'make bench              speed, beside what it is compared with'
	@echo 'make bench-peers        Spark, Flink, Kafka Streams and an upsert by hand beside it, over a real broker (Java 17; half an hour)'
	@echo 'make fuzz               libFuzzer over the decoders, FUZZ_SECONDS=60 (wants clang)'
	@echo 'make deps               installs what is missing (Debian: apt)'
	@echo 'make && make install    into the PostgreSQL of PG_CONFIG'
	@echo 'make lint, make format  house rules; clang-format. make analyze: the opinion of clang'"'"'s analyzer'

deps:
	@$(HARNESS) deps build test
	@echo 'Nothing is missing. Next: make && sudo make install'
demo:
	@$(HARNESS) demo
ifndef PGXS
check:
	@$(HARNESS) check regress isolation tap conformance property layers lint
endif
check-regress check-isolation check-tap check-conformance check-property check-layers check-kafka check-release:
	@$(HARNESS) check $(@:check-%=%)
check-mutants check-sanitize check-valgrind:
	@$(HARNESS) $(@:check-%=%)
report:
	@$(HARNESS) report
soak:
	@SOAK_BATCHES=$(or $(SOAK_BATCHES),10000) TAP_TIMEOUT=3600 PG_CONFIG="$(PG_CONFIG)" TESTS=027_soak test/lib/harness check tap
check-versions:
	@VERSIONS="$(VERSIONS)" TESTS="$(TESTS)" test/lib/versions
bench bench-peers:
	@$(HARNESS) $@
fuzz:
	@$(MAKE) -s -f test/fuzz/Makefile run
lint:
	@$(HARNESS) check layers lint
format:
	@$(HARNESS) deps format
	clang-format -i $(wildcard src/*.[ch] src/*/*.[ch] test/lib/*.[ch])
