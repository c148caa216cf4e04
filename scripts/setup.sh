#!/bin/bash
# setup.sh [--tests]: installs what Pinfold, and with --tests what its tests need
# on Debian 12 or 13, builds runsc, and, run as root, makes the plain user that
# owns the sandboxes. It changes nothing that is in place already: a second run
# takes a second.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

runsc_version=v0.0.0-20260905035102-160fafc42237
packages=(
	podman crun runc uidmap slirp4netns passt fuse-overlayfs netavark aardvark-dns dbus-user-session
	mmdebstrap ca-certificates ripgrep jq git procps util-linux
)
# Tests without Podman run the guest's kernels, files and commands, and the
# browser, on this machine itself.
if [ "${1:-}" = --tests ]; then
	packages+=(
		shellcheck chromium-headless-shell fonts-liberation python3 python3-ipykernel python3-pandas python3-matplotlib
		gcc libc6-dev patch curl sqlite3 file xz-utils unzip
	)
fi

say() { echo "setup: $*"; }

root() { # runs a command as root, or notes it for the end
	if [ "$(id -u)" = 0 ]; then
		"$@"
	elif command -v sudo >/dev/null 2>&1 && { [ -t 0 ] || sudo -n true 2>/dev/null; }; then
		sudo "$@"
	else
		todo+=("$*")
	fi
}
todo=()

# --- Go -------------------------------------------------------------------
if ! command -v go >/dev/null 2>&1; then
	if [ -x /usr/local/go/bin/go ]; then
		PATH=/usr/local/go/bin:$PATH
	else
		say "Go was not found on PATH, nor in /usr/local/go/bin; install Go 1.26 or newer first (Debian's own is older)" >&2
		exit 1
	fi
fi
# From 1.21 on, Go fetches the version that go.mod asks for.
have=$(go env GOVERSION)
if [ "$(printf '%s\n' 1.21 "${have#go}" | sort -V | head -n 1)" != 1.21 ]; then
	say "$(command -v go) is $have, which is too old; install Go 1.26 or newer first (Debian's own is older)" >&2
	exit 1
fi

# --- packages ---------------------------------------------------------------
installed() { [ "$(dpkg-query -W -f '${db:Status-Abbrev}' "$1" 2>/dev/null)" = "ii " ]; }

if command -v apt-get >/dev/null 2>&1; then
	missing=()
	for p in "${packages[@]}"; do
		installed "$p" || missing+=("$p")
	done
	# Node runs the TypeScript client and the conformance suite; any source of it will do.
	if ! command -v node >/dev/null 2>&1 || ! command -v npm >/dev/null 2>&1; then missing+=(nodejs npm); fi
	if [ ${#missing[@]} -gt 0 ]; then
		say "installing ${missing[*]}"
		root apt-get update -q
		root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends \
			-o Dpkg::Use-Pty=0 -o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold "${missing[@]}"
	fi
else
	for p in podman newuidmap rg jq git node npm; do
		command -v "$p" >/dev/null 2>&1 || todo+=("(install $p with this system's package manager)")
	done
fi

# --- runsc ------------------------------------------------------------------
# Built, not fetched: the module proxy is the only source everybody here has.
# With cgo it builds too, and dies at its start.
if [ "$(id -u)" = 0 ]; then bin=/usr/local/bin; else bin=$HOME/.local/bin; fi
have_runsc() {
	local r
	for r in "$bin/runsc" "$(command -v runsc 2>/dev/null || true)"; do
		[ -n "$r" ] && [ -x "$r" ] && go version -m "$r" 2>/dev/null | grep -q "gvisor.dev/gvisor[[:space:]]*$runsc_version" && return 0
	done
	return 1
}
if ! have_runsc; then
	say "building runsc $runsc_version into $bin (some minutes)"
	mkdir -p "$bin"
	CGO_ENABLED=0 GOBIN=$bin GOFLAGS='' "$here/alive.sh" "building runsc" go install "gvisor.dev/gvisor/runsc@$runsc_version"
fi

# --- the user who owns sandboxes -------------------------------------------
user=$(id -un)
if [ "$(id -u)" = 0 ]; then
	user=${PINFOLD_USER:-pinfold}
	if ! id "$user" >/dev/null 2>&1; then
		say "making the plain user $user"
		useradd --create-home --shell /bin/bash --comment 'Pinfold sandboxes' "$user"
	fi
	if [ "$(id -u "$user")" -lt 1000 ]; then
		say "the user $user has uid $(id -u "$user"); it must be a plain user with uid 1000 or above" >&2
		exit 1
	fi
fi
uid=$(id -u "$user")

# 65,536 subordinate ids, after the last that anybody has.
for kind in uid gid; do
	if ! awk -F: -v u="$user" -v n="$uid" '($1 == u || $1 == n) && $3 >= 65536 { found = 1 } END { exit !found }' "/etc/sub$kind" 2>/dev/null; then
		first=$(awk -F: 'BEGIN { m = 100000 } $2 + $3 > m { m = $2 + $3 } END { print m }' "/etc/sub$kind" 2>/dev/null || echo 100000)
		say "giving $user the subordinate ${kind}s $first-$((first + 65535))"
		root usermod "--add-sub${kind}s" "$first-$((first + 65535))" "$user"
	fi
done

# A runtime folder that outlives logins, and with systemd the cgroups that hold limits.
run=/run/user/$uid
if [ "$(id -u)" = 0 ]; then
	if [ -d /run/systemd/system ] && command -v loginctl >/dev/null 2>&1; then
		[ -e "/var/lib/systemd/linger/$user" ] || loginctl enable-linger "$user"
	elif [ ! -d "$run" ]; then
		install -d -m 0755 /run/user
		install -d -m 0700 -o "$user" -g "$(id -g "$user")" "$run"
	fi
elif [ ! -d "$run" ] && [ -z "${XDG_RUNTIME_DIR:-}" ]; then
	say "making the runtime folder $run"
	if [ -d /run/systemd/system ] && command -v loginctl >/dev/null 2>&1; then
		root loginctl enable-linger "$user"
	else
		root install -d -m 0755 /run/user
		root install -d -m 0700 -o "$uid" -g "$(id -g)" "$run"
	fi
fi

# Only where nobody has decided and nothing is stored: Podman's own choice for
# plain users can be vfs, which copies every layer. Before Podman's first start,
# which makes the storage.
home=$(getent passwd "$user" | cut -d: -f6)
conf=$home/.config/containers/storage.conf
if [ ! -e "$conf" ] && [ ! -e "$home/.local/share/containers/storage" ] &&
	[ ! -e /etc/containers/storage.conf ] && [ ! -e /usr/share/containers/storage.conf ] &&
	[ -z "${STORAGE_DRIVER:-}${CONTAINERS_STORAGE_CONF:-}" ]; then
	say "choosing overlay storage for $user ($conf)"
	if [ "$(id -u)" = 0 ]; then
		install -d -o "$user" -g "$(id -g "$user")" "$home/.config" "$home/.config/containers"
	else
		mkdir -p "$home/.config/containers"
	fi
	printf '[storage]\ndriver = "overlay"\n' >"$conf"
	if [ "$(id -u)" = 0 ]; then chown "$user:" "$conf"; fi
fi

if [ ${#todo[@]} -gt 0 ]; then
	{
		say "root is needed and sudo is not there, or would ask for a password. Run as root, then make setup again:"
		printf '    %s\n' "${todo[@]}"
	} >&2
	exit 1
fi

# --- does it work? ----------------------------------------------------------
if ! said=$("$here/as-user.sh" -- podman unshare true 2>&1); then
	echo "$said" >&2
	say "rootless Podman does not work for $user; see the message above" >&2
	exit 1
fi
driver=$("$here/as-user.sh" -- podman info --format '{{.Store.GraphDriverName}}' 2>/dev/null || true)
if [ "$driver" = vfs ]; then
	say "warning: Podman of $user stores with vfs, ten times slower than overlay. To change it, which drops the user's" >&2
	say "images and containers: podman system reset; then put [storage] driver = \"overlay\" into $conf" >&2
fi
say "ready: $("$here/as-user.sh" -- podman --version 2>/dev/null), user $user, storage ${driver:-unknown}"
