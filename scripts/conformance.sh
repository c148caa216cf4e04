#!/bin/bash
# conformance.sh: runs the official MCP conformance suite against Pinfold's
# transports (cmd/pinfold-conformance has what the suite wants to find), both
# requirement sets, and the Inspector's --strict check on the real tool list.
#
# Node and the two packages are installed once, by npm, into a cache folder.
set -euo pipefail
cd "$(dirname "$0")/.."
# Exact versions, so that a run tomorrow means what it means today.
suite=@modelcontextprotocol/conformance@0.2.0-alpha.12
inspector=@modelcontextprotocol/inspector@2.12.0
cache=${PINFOLD_CONFORMANCE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/pinfold-conformance}

# npm's node may be too old for the suite, which needs 22.
fetch() {
	local folder=$cache/$1 stamp
	shift
	stamp=$(printf '%s ' "$@")
	if [ "$(cat "$folder/stamp" 2>/dev/null)" = "$stamp" ]; then return; fi
	rm -rf "$folder"
	mkdir -p "$folder"
	echo "installing $*"
	(cd "$folder" && scripts=$OLDPWD/scripts && "$scripts/alive.sh" "npm install" npm install --silent --no-audit --no-fund --no-save "$@")
	printf '%s' "$stamp" >"$folder/stamp"
}
command -v npm >/dev/null || {
	echo "conformance: npm is missing; run: make setup" >&2
	exit 1
}
fetch node node@22
fetch suite "$suite" "$inspector"
export PATH=$cache/node/node_modules/.bin:$PATH
bin=$cache/suite/node_modules/.bin

scripts/alive.sh "building bin/pinfold-conformance" go build -trimpath -o bin/pinfold-conformance ./cmd/pinfold-conformance
out=out/conformance
rm -rf "$out"
mkdir -p "$out"
bin/pinfold-conformance 127.0.0.1:0 2>"$out/server.log" &
server=$!
home=$(mktemp -d)
# shellcheck disable=SC2317,SC2329 # called by the trap
finish() {
	kill "$server" 2>/dev/null || true
	wait "$server" 2>/dev/null || true
	rm -rf "$home"
}
trap finish EXIT
url=
for _ in $(seq 100); do
	url=$(sed -n 's/^serving //p' "$out/server.log")
	[ -n "$url" ] && break
	sleep 0.1
done
[ -n "$url" ] || {
	cat "$out/server.log" >&2
	exit 1
}

failed=0
for set in 2025-11-25 2026-07-28; do
	if "$bin/conformance" server --url "$url" --requirements "$set" -o "$out/$set" \
		--expected-failures "cmd/pinfold-conformance/expected-failures-$set.yml" >"$out/$set.log" 2>&1; then
		verdict=ok
	else
		verdict=FAIL
		failed=1
	fi
	passed=$(sed -n '/=== SUMMARY ===/,/^Total/p' "$out/$set.log" | grep -c '^✓' || true)
	lost=$(sed -n '/=== SUMMARY ===/,/^Total/p' "$out/$set.log" | grep -c '^✗' || true)
	echo "$verdict  $set: $passed scenarios pass, $lost fail; $(grep '^Total' "$out/$set.log" || true)"
	if [ $verdict = FAIL ]; then sed -n '/=== SUMMARY ===/,$p' "$out/$set.log"; fi
done

# The product's own list, as strict clients read it.
for era in legacy modern; do
	if HOME=$home "$bin/mcp-inspector" --cli --protocol-era "$era" bin/pinfold serve --tools all --method tools/list --strict --format json \
		>"$out/tools-$era.json" 2>"$out/tools-$era.log"; then
		echo "ok    Inspector --strict, $era: $(grep -o '"inputSchema"' "$out/tools-$era.json" | wc -l) tools"
	else
		echo "FAIL  Inspector --strict, $era"
		tail -n 20 "$out/tools-$era.log"
		failed=1
	fi
done
exit $failed
