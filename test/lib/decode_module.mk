# decode_module: the decoders as SQL functions, for tests. A library, named without suffix as the harness expects.
build/decode_module: test/lib/decode_module.c $(wildcard src/format/*.[ch])
	mkdir -p build
	$(CC) -std=gnu11 -O2 -g -Wall -Wextra -Wno-unused-parameter -Wno-sign-compare -Wno-missing-field-initializers -fwrapv -fno-strict-aliasing \
		-shared -fPIC -Wl,-Bsymbolic -Isrc -I$(shell $(PG_CONFIG) --includedir-server) -D_GNU_SOURCE -o $@ $(filter %.c,$^) -lm
