#!/bin/bash
# as-user.sh [--stage PATH]… -- CMD…: runs CMD as the plain user that owns the
# sandboxes, with a clean environment. Run as a plain user, that is the user
# itself; run as root, it is PINFOLD_USER (pinfold), which `make setup` makes.
# Staged files and folders are copied to a folder that the user can read, which
# becomes the working folder: the repository may lie where it cannot look.
# Variables that begin with PINFOLD_ are passed on.
set -euo pipefail

stage=()
while [ "${1:-}" != -- ]; do
	case "${1:-}" in
	--stage)
		stage+=("$2")
		shift 2
		;;
	*)
		echo "usage: as-user.sh [--stage PATH]… -- CMD…" >&2
		exit 2
		;;
	esac
done
shift

user=$(id -un)
if [ "$(id -u)" = 0 ]; then
	user=${PINFOLD_USER:-pinfold}
	if ! id "$user" >/dev/null 2>&1; then
		echo "as-user: there is no user $user; run: make setup" >&2
		exit 1
	fi
fi
uid=$(id -u "$user")
home=$(getent passwd "$user" | cut -d: -f6)
run=${XDG_RUNTIME_DIR:-}
if [ "$(id -u)" = 0 ] || [ -z "$run" ]; then run=/run/user/$uid; fi
# /run is empty after each start of the machine; without systemd nobody else fills it.
if [ ! -d "$run" ] && [ "$(id -u)" = 0 ]; then
	install -d -m 0755 /run/user
	install -d -m 0700 -o "$uid" -g "$(id -g "$user")" "$run"
fi

cd_to=$home
cleanup=
if [ ${#stage[@]} -gt 0 ]; then
	cd_to=$(mktemp -d "${TMPDIR:-/tmp}/pinfold-stage.XXXXXX")
	cleanup=$cd_to
	trap 'rm -rf "$cleanup"' EXIT
	chmod 0755 "$cd_to"
	cp -r --no-preserve=ownership "${stage[@]}" "$cd_to/"
	chmod -R a+rX "$cd_to"
fi

env=(HOME="$home" USER="$user" LOGNAME="$user" LANG=C.UTF-8 TERM="${TERM:-dumb}"
	PATH=/usr/local/go/bin:/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin
	XDG_RUNTIME_DIR="$run")
if [ "$(id -u)" != 0 ]; then env+=(PATH="$PATH"); fi
while IFS='=' read -r -d '' name value; do
	case $name in PINFOLD_*) env+=("$name=$value") ;; esac
done < <(env -0)

cd "$cd_to"
as=()
if [ "$(id -u)" = 0 ]; then
	as=(setpriv --reuid "$uid" --regid "$(id -g "$user")" --init-groups --inh-caps=-all)
fi
if [ -z "$cleanup" ]; then exec "${as[@]}" env -i "${env[@]}" "$@"; fi
"${as[@]}" env -i "${env[@]}" "$@"
