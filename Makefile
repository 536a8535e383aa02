# stream_ext: `make demo` shows it, `make check` tests it; `make help` lists the rest.

EXTENSION = stream_ext
EXTVERSION = 0.1.0
MODULE_big = stream_ext
SOURCES := $(sort $(wildcard src/*.c src/*/*.c))
OBJS := $(SOURCES:.c=.o)
INSTALL_PARTS := $(sort $(wildcard sql/install/*.sql))
DATA = $(wildcard sql/stream_ext--*--*.sql)
DATA_built = sql/$(EXTENSION)--$(EXTVERSION).sql
DOCS = $(wildcard doc/*.md)

PG_CPPFLAGS = -I$(CURDIR)/src $(shell pkg-config --cflags rdkafka 2>/dev/null)
PG_CFLAGS = -Wall -Wextra -Wno-unused-parameter -Wno-sign-compare -Wno-missing-field-initializers
SHLIB_LINK = -lrdkafka -lpthread -Wl,--version-script=$(CURDIR)/src/exports.map
EXTRA_CLEAN = build results output_iso regression.diffs regression.out tmp_check log

ifdef FAILPOINTS
PG_CPPFLAGS += -DSTREAM_FAILPOINTS
endif
ifdef WERROR
PG_CFLAGS += -Werror
endif

PG_CONFIG ?= pg_config
PGXS := $(shell $(PG_CONFIG) --pgxs)
ifneq ($(wildcard $(PGXS)),)
include $(PGXS)
endif

# Every object sees every header: the tree is small, a stale object costs more.
$(OBJS): $(wildcard src/*.h src/*/*.h)

$(DATA_built): $(INSTALL_PARTS)
	cat $(INSTALL_PARTS) > $@

include test/lib/broker.mk
