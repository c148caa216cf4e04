#!/bin/bash
# mini-image.sh: makes localhost/pinfold-test:mini, the small image most tests
# use, unless it is there. It lacks on purpose what Pinfold's own image has (a
# kernel, Chromium). Runs as the plain user; its packages come from where this
# machine's apt fetches.
set -euo pipefail
ref=localhost/pinfold-test:mini
if podman image exists "$ref"; then exit 0; fi
# shellcheck disable=SC1091 # of the machine
. /etc/os-release
# shellcheck disable=SC2016 # words of apt, not of the shell
sources=$(apt-get indextargets --format 'deb $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
	awk -v c="$VERSION_CODENAME" '($3 == c || $3 == c "-updates" || $3 == c "-security") && ($4 == "main" || $4 == "universe")' | sort -u)
[ -n "$sources" ] || { echo "mini-image: apt has no source for $VERSION_CODENAME main" >&2; exit 1; }
TMPDIR=/var/tmp mmdebstrap --mode=unshare --variant=minbase --format=tar \
	--include=python3-minimal,git,ripgrep,curl,procps,ca-certificates --aptopt='APT::Install-Recommends false' \
	"$VERSION_CODENAME" - - <<<"$sources" | podman import - "$ref"
# The copies of its layers for both mappings, so that no test pays for them.
for mapping in nomap keep-id:uid=1000,gid=1000; do
	podman rm "$(podman create --network=none --userns="$mapping" "$ref" true)" >/dev/null
done
