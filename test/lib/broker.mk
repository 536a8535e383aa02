# stream_broker: the embedded Kafka broker and producer of tests, benchmarks and the demo.
build/stream_broker: test/lib/broker.c test/lib/broker_admin.c test/lib/broker.h test/lib/cards.c test/lib/cards.h
	mkdir -p build
	$(CC) -std=gnu11 -O2 -g -Wall -Wextra -Wformat-truncation=0 -o $@ test/lib/broker.c test/lib/broker_admin.c test/lib/cards.c $(shell pkg-config --cflags --libs rdkafka)
