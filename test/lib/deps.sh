# deps.sh: which packages the project needs, and how they get there: apt on Debian and its kin, elsewhere a plain list.
# One line of `deps_table` per need: group, Debian package, a test that tells whether it is there.
# Danger: installs with root's rights, and only what is missing.

deps_pg_config()
{
	local candidate
	for candidate in "${PG_CONFIG:-}" /usr/lib/postgresql/15/bin/pg_config pg_config; do
		[ -n "$candidate" ] && command -v "$candidate" >/dev/null && { command -v "$candidate"; return; }
	done
	return 1
}

deps_pg_file() # is this file of a PostgreSQL that we support there? $1: which pg_config item, $2: path below it
{
	local config
	config=$(deps_pg_config) || return 1
	[[ $("$config" --version) =~ ^PostgreSQL\ 1[5-8] ]] && [ -e "$("$config" "--$1")/$2" ]
}

deps_header() { echo "#include <$1>" | gcc -E -x c - >/dev/null 2>&1; }
deps_perl() { perl "-M$1" -e 1 2>/dev/null; }
deps_python() { /usr/bin/python3 -c "import $1" 2>/dev/null; }
deps_command() { command -v "$1" >/dev/null; }

deps_table()
{
	cat <<-'END'
		build   gcc                        deps_command gcc
		build   libc6-dev                  deps_header stdlib.h
		build   make                       deps_command make
		build   pkg-config                 deps_command pkg-config
		build   postgresql-server-dev-15   deps_pg_file includedir-server postgres.h
		build   librdkafka-dev             deps_header librdkafka/rdkafka.h
		build   zlib1g-dev                 deps_header zlib.h
		build   libcurl4-openssl-dev       deps_header curl/curl.h
		test    postgresql-15              deps_pg_file bindir initdb
		other   postgresql-15-hll          deps_pg_file sharedir extension/hll.control
		other   postgresql-15-tdigest      deps_pg_file sharedir extension/tdigest.control
		other   postgresql-15-cron         deps_pg_file sharedir extension/pg_cron.control
		valgrind valgrind                  deps_command valgrind
		test    libipc-run-perl            deps_perl IPC::Run
		test    perl                       deps_perl Test::More
		test    openssl                    deps_command openssl
		test    python3                    deps_command python3
		kafka   default-jdk-headless       deps_command javac
		kafka   maven                      deps_command mvn
		peers   kcat                       deps_command kcat
		peers   python3-venv               deps_python ensurepip
		format  clang-format               deps_command clang-format
	END
}

deps_missing() # packages of the groups named that are not there, one a line
{
	local group package probe
	while read -r group package probe; do
		[[ " $* " == *" $group "* ]] || continue
		$probe || echo "$package"
	done < <(deps_table)
}

deps_require()
{
	local missing sudo=
	missing=$(deps_missing "$@" | tr '\n' ' ')
	[ -z "$missing" ] && return 0
	if ! command -v apt-get >/dev/null; then
		echo "Missing (Debian's names): $missing" >&2
		echo "There is no apt here to install them with; PostgreSQL must be 15 to 18, with its server headers and PGXS." >&2
		exit 1
	fi
	if [ "$(id -u)" != 0 ]; then
		if ! command -v sudo >/dev/null; then
			echo "Missing: $missing" >&2
			echo "Installing them takes root; as root: apt-get install $missing" >&2
			exit 1
		fi
		sudo=sudo
	fi
	echo "== Installing what is missing: $missing"
	# shellcheck disable=SC2086
	if deps_apt $missing; then
		rm -f "$deps_log"
	else
		echo "apt could not install: $missing" >&2
		grep -E '^E:' "$deps_log" >&2 || tail -5 "$deps_log" >&2
		echo "Debian 12 has all of them; for PostgreSQL 15 on other releases add the repository at apt.postgresql.org." >&2
		exit 1
	fi
	missing=$(deps_missing "$@" | tr '\n' ' ')
	[ -z "$missing" ] || { echo "Installed, but still not usable: $missing" >&2; exit 1; }
}

deps_apt()
{
	deps_log=$(mktemp)
	$sudo apt-get update -q >"$deps_log" 2>&1 || true   # an unreachable extra repository need not matter
	$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$@" >>"$deps_log" 2>&1
}
