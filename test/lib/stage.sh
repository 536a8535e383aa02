# stage.sh: a copy of the tree and of the PostgreSQL installation, built and owned by an unprivileged user.
# Path: build/check or build/demo when that user can get there, else a directory below /tmp that is removed at the end.
# Danger: check is built with crash points, demo and bench without; they share nothing.

stage_user() # who runs PostgreSQL: it refuses to run as root
{
	[ "$(id -u)" != 0 ] && { id -un; return; }
	id -u postgres >/dev/null 2>&1 && { echo postgres; return; }
	echo "PostgreSQL does not run as root, and there is no user 'postgres' to run it as" >&2
	return 1
}

stage_as() # run as that user
{
	if [ "$user" = "$(id -un)" ]; then "$@"; else runuser -u "$user" -- "$@"; fi
}

stage_make_place() # sets work
{
	work=$top/build/$1
	outside=
	mkdir -p "$work" 2>/dev/null || true
	[ "$(id -u)" = 0 ] && chown "$user" "$top/build" "$work"
	stage_as test -w "$work" && return
	outside=1
	work=$(mktemp -d /tmp/stream_ext.XXXXXX)
	chmod 755 "$work"
	[ "$(id -u)" = 0 ] && chown "$user" "$work"
	echo "== User $user cannot get to $top: working in $work"
}

stage_copy_tree() # sources keep their times, so make builds only what changed
{
	mkdir -p "$work/tree"
	find "$work/tree" -type f ! -name '*.o' ! -name '*.so' -delete
	local part parts=()
	for part in src sql test expected doc Makefile stream_ext.control README.md; do
		[ ! -e "$top/$part" ] || parts+=("$part")
	done
	tar -C "$top" -c --exclude='*.o' --exclude='*.so' --exclude='*.bc' --exclude=__pycache__ --exclude='sql/stream_ext--?.?.?.sql' "${parts[@]}" |
		tar -C "$work/tree" -x
	rm -rf "$work/tree/results" "$work/tree/tmp_check" "$work/tree/output_iso"
}

stage_copy_release() # the last release, from the history of the repository
{
	local version commit
	read -r version commit <"$top/test/release/COMMIT"
	[ "$(cat "$work/release/commit" 2>/dev/null)" != "$commit" ] || return 0
	rm -rf "$work/release"
	mkdir -p "$work/release"
	if ! git -c safe.directory="$top" -C "$top" archive "$commit" 2>/dev/null | tar -C "$work/release" -x 2>/dev/null; then
		echo "Version $version is built from the history of the repository: this takes git, and a clone with commit $commit in it" >&2
		exit 1
	fi
	echo "$commit" >"$work/release/commit"
}

stage_copy_postgres() # PostgreSQL finds its files relative to its programs, so a copy in the same shape works
{
	local bin lib share version
	bin=$("$config" --bindir) lib=$("$config" --pkglibdir) share=$("$config" --sharedir)
	version="$("$config" --version) $bin $(ls "$share/extension" | grep -v '^stream_ext' | cksum)"
	if [ "$(cat "$work/pg/version" 2>/dev/null)" != "$version" ]; then
		rm -rf "$work/pg" "$work/tree/build" "$work/release"
		find "$work/tree" \( -name '*.o' -o -name '*.so' \) -delete      # made for another one
		mkdir -p "$work/pg$bin" "$work/pg$lib" "$work/pg$share"
		for program in postgres initdb pg_ctl pg_config psql pg_dump pg_dumpall pg_restore pg_basebackup pg_rewind pg_isready \
			pg_controldata pg_resetwal pg_waldump pg_upgrade pg_verifybackup pg_receivewal pgbench createdb dropdb vacuumdb; do
			[ ! -e "$bin/$program" ] || cp -pL "$bin/$program" "$work/pg$bin/"
		done
		tar -C "$lib" -c --exclude=./pgxs --exclude=./bitcode --exclude='stream_ext*' . | tar -C "$work/pg$lib" -x
		tar -C "$share" -c --exclude='stream_ext*' . | tar -C "$work/pg$share" -x
		echo "$version" >"$work/pg/version"
	fi
	rm -f "$work/pg$share"/extension/stream_ext*
}

stage_clean()
{
	[ -n "$outside" ] || return 0
	if [ -d "$work/logs" ]; then
		mkdir -p "$top/build/logs" && cp -r "$work/logs/." "$top/build/logs"
	fi
	rm -rf "$work"
}

stage_run() # $1 command, then its arguments: prepares the copy and runs the second half there
{
	local command=$1 status=0
	shift
	user=$(stage_user)
	config=$(deps_pg_config)
	stage_make_place "$command"
	trap stage_clean EXIT
	exec 9>"$work/lock"
	flock -n 9 || { echo "another 'make $command' is running in $work" >&2; exit 1; }
	stage_copy_tree
	stage_copy_postgres
	[[ " $* " != *" release "* ]] || stage_copy_release
	[ "$(id -u)" = 0 ] && chown -R "$user" "$work"
	cd "$work/tree"
	stage_as env -u PGHOST -u PGPORT -u PGUSER -u PGDATABASE -u PGOPTIONS -u PGSERVICE -u PGPASSWORD -u PGDATA -u PGTZ -u PGDATESTYLE \
		HOME="$work" PG_CONFIG="$config" WERROR="${WERROR:-}" TESTS="${TESTS:-}" WORK="$work" \
		bash "$work/tree/test/lib/harness" "inside-$command" "$@" 9>&- || status=$?
	[ $status = 0 ] || [ -z "$outside" ] || echo "Logs: $top/build/logs"
	exit $status
}

# ---- inside the copy ----

inside_prepare() # $1: make variables of this build. Builds, installs into the copy, sets the environment of all suites
{
	local pgxs
	pgxs=$("$PG_CONFIG" --pgxs)
	pgxs=${pgxs%/src/makefiles/pgxs.mk}
	export PATH="$WORK/pg$("$PG_CONFIG" --bindir):$PATH"
	export PG_REGRESS=$pgxs/src/test/regress/pg_regress
	export PG_ISOLATION_REGRESS=$pgxs/src/test/isolation/pg_isolation_regress
	export PERL5LIB=$pgxs/src/test/perl:$WORK/tree/test/lib${PERL5LIB:+:$PERL5LIB}     # a PostgreSQL without the Perl modules may borrow others
	export STREAM_BUILD=$WORK/tree/build
	mkdir -p "$WORK/logs"
	echo "== Building"
	if ! make -s -C "$WORK/tree" -j2 with_llvm=no PG_CONFIG="$PG_CONFIG" ${WERROR:+WERROR=1} ${1:-} all $(inside_programs) >"$WORK/logs/make.log" 2>&1 ||
		! make -s -C "$WORK/tree" with_llvm=no PG_CONFIG="$PG_CONFIG" ${1:-} DESTDIR="$WORK/pg" install >>"$WORK/logs/make.log" 2>&1; then
		grep -E 'error|undefined|\*\*\*' "$WORK/logs/make.log" | head -30 >&2
		echo "The build failed; all of it: $WORK/logs/make.log" >&2
		exit 1
	fi
}

inside_programs() # helper programs that the makefiles beside the harness know how to make
{
	sed -n 's/^\(build\/[a-z_]*\):.*/\1/p' test/lib/*.mk
}

inside_start_cluster() # a cluster of our own in $WORK/data; ends with the script
{
	rm -rf "$WORK/data" "$WORK/logs/postgres.log"
	initdb -D "$WORK/data" -A trust -U postgres -E UTF8 --locale=C --no-sync >"$WORK/logs/initdb.log" 2>&1 || {
		tail -5 "$WORK/logs/initdb.log" >&2; exit 1; }
	socket=$(mktemp -d /tmp/stream_ext.XXXXXX)     # short: socket names end at 107 bytes
	trap inside_stop EXIT
	cat test/lib/cluster.conf - >>"$WORK/data/postgresql.conf" <<-END
		listen_addresses = ''
		unix_socket_directories = '$socket'
		$([[ $("$PG_CONFIG" --version) != "PostgreSQL 15"* ]] && echo 'enable_presorted_aggregate = off')
		$*
	END
	export PGHOST=$socket PGUSER=postgres PGDATABASE=postgres
	pg_ctl -s -w -D "$WORK/data" -l "$WORK/logs/postgres.log" start >"$WORK/logs/pg_ctl.log" 2>&1 || {
		tail -20 "$WORK/logs/postgres.log" >&2; exit 1; }
}

inside_stop()
{
	[ ! -e "$WORK/data/postmaster.pid" ] || pg_ctl -s -w -D "$WORK/data" -m immediate stop >/dev/null 2>&1 || true
	rm -rf "$socket" "$WORK/data"
}
