# What `make bench` measures with: a bare consumer, and a producer that watches the table.
build/bench_consumer: test/bench/consumer.c
	mkdir -p build
	$(CC) -std=gnu11 -O2 -Wall -Wextra -o $@ test/bench/consumer.c $(shell pkg-config --cflags --libs rdkafka)

build/bench_latency: test/bench/latency.c
	mkdir -p build
	$(CC) -std=gnu11 -O2 -Wall -Wextra -o $@ test/bench/latency.c -I$(shell $(PG_CONFIG) --includedir) -L$(shell $(PG_CONFIG) --libdir) -lpq $(shell pkg-config --cflags --libs rdkafka)
