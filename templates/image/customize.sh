#!/bin/sh
# Finishes the image in the root named by the first argument: the users every
# sandbox has, and package managers that work for uid 1000 without root.
set -eu
root=${1:?the root file system}

grep -q '^agent:' "$root/etc/passwd" || {
	echo 'agent:x:1000:1000:agent:/home/agent:/bin/bash' >>"$root/etc/passwd"
	echo 'agent:x:1000:' >>"$root/etc/group"
}
grep -q '^browser:' "$root/etc/passwd" || {
	echo 'browser:x:1001:1001:browser:/browser:/usr/sbin/nologin' >>"$root/etc/passwd"
	echo 'browser:x:1001:' >>"$root/etc/group"
}
chmod 0644 "$root/etc/passwd" "$root/etc/group"
mkdir -p "$root/workspace" "$root/session" "$root/home/agent" "$root/browser" "$root/.pinfold/link"
chown 1000:1000 "$root/workspace" "$root/session" "$root/home/agent"
chown 1001:1001 "$root/browser"
chmod 0700 "$root/browser"
: >"$root/.pinfold/guest"
chmod 0755 "$root/.pinfold/guest"

# PEP 668 keeps pip out of the system's Python. Nothing here is a system: the
# sandbox ends with the session, and pip writes to the user's own folder.
cat >"$root/etc/pip.conf" <<'CONF'
[global]
break-system-packages = true
disable-pip-version-check = true
no-warn-script-location = true
CONF
cat >"$root/etc/npmrc" <<'CONF'
prefix=/home/agent/.local
fund=false
audit=false
update-notifier=false
CONF

# Tests of installed Python packages, and a code generator that only builds of
# scipy use. They cannot be left out when unpacking: dpkg compiles them.
rm -rf "$root"/usr/lib/python3/dist-packages/pythran "$root"/usr/lib/python3.*/test/test_* "$root"/usr/lib/python3.*/idlelib
find "$root/usr/lib/python3/dist-packages" -depth -type d -name tests -exec rm -rf {} +

# What apt can fetch again, and the logs of the installation.
rm -rf "$root"/var/lib/apt/lists/* "$root"/var/cache/apt/*.bin "$root"/var/cache/apt/archives/*.deb \
	"$root"/var/cache/debconf/*-old "$root"/var/cache/fontconfig/* "$root"/var/log/*.log "$root"/var/log/apt
if [ "$root" = / ]; then fc-cache -s >/dev/null 2>&1 || true; else chroot "$root" fc-cache -s >/dev/null 2>&1 || true; fi
# A proxy of the building machine, which may hold a password, stays there.
rm -f "$root/etc/apt/apt.conf.d/99mmdebstrap"
