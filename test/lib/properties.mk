# kafka_properties: prints the properties of the librdkafka we are linked with.
build/kafka_properties: test/lib/properties.c
	mkdir -p build
	$(CC) -std=gnu11 -Wall -Wextra -o $@ $< $(shell pkg-config --cflags --libs rdkafka)
