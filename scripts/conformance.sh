#!/bin/bash
# conformance.sh: the official conformance suite of MCP against Pinfold's own
# transports, and the Inspector's strict look at the list of tools. Expected
# failures, with their reasons, stand beside the fixture.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$PWD/out/conformance

# Versions and digests stand in the lock file; where npm fetches is npm's own
# configuration. Not npm ci, which insists on an optional package for Windows
# that the registry does not have. Node 22 comes along, for the suite does not start on older ones.
want=$(cat e2e/conformance/package*.json | sha256sum | cut -c1-16)
if [ "$(cat "$out/.lock" 2>/dev/null)" != "$want" ]; then
	rm -rf "$out"
	mkdir -p "$out"
	cp e2e/conformance/package*.json "$out/"
	(root=$PWD && cd "$out" && "$root/scripts/alive.sh" "installing the suite" npm install --no-save --no-audit --no-fund --ignore-scripts --loglevel=error)
	echo "$want" >"$out/.lock"
fi
node=$(find "$out"/node_modules/node-linux-*/bin/node 2>/dev/null | head -n 1)
PATH=$(dirname "$node"):$PATH
export PATH HOME="$out/home"
mkdir -p "$HOME"
suite=$out/node_modules/.bin/conformance
inspector=$out/node_modules/.bin/mcp-inspector

GOCACHE=${GOCACHE:-$(HOME=$(getent passwd "$(id -u)" | cut -d: -f6) go env GOCACHE)}
GOMODCACHE=${GOMODCACHE:-$(HOME=$(getent passwd "$(id -u)" | cut -d: -f6) go env GOMODCACHE)}
export GOCACHE GOMODCACHE
go build -o bin/pinfold-conformance ./cmd/pinfold-conformance

bin/pinfold-conformance 127.0.0.1:0 2>"$out/server.log" &
server=$!
trap 'kill "$server" 2>/dev/null || true' EXIT
url=
for _ in $(seq 100); do
	url=$(sed -n 's/^serving //p' "$out/server.log")
	[ -n "$url" ] && break
	kill -0 "$server"
	sleep 0.1
done
[ -n "$url" ] || { echo "conformance: the fixture did not start" >&2; cat "$out/server.log" >&2; exit 1; }

failed=()
for set in 2025-11-25 2026-07-28; do
	echo "== conformance, requirements of $set"
	timeout 180 "$suite" server --url "$url" --requirements "$set" --expected-failures "cmd/pinfold-conformance/expected-failures-$set.yml" -o "$out/$set" || failed+=("conformance $set")
done

echo "== inspector --strict, stdio"
printf '#!/bin/sh\nexec "%s/scripts/as-user.sh" --stage "%s/bin/pinfold" -- ./pinfold serve\n' "$PWD" "$PWD" >"$out/serve"
chmod 0755 "$out/serve"
# Without a terminal and a keychain it must be told where secrets go, or it waits.
MCP_INSPECTOR_SECRET_STORE=memory timeout 60 "$inspector" --cli "$out/serve" --method tools/list --strict --format json \
	>"$out/tools.json" 2>"$out/inspector.log" </dev/null || { failed+=("inspector --strict"); tail -n 20 "$out/inspector.log"; }
jq -r '"\(.result.tools | length) tools, nothing to say"' "$out/tools.json" || failed+=("inspector: no list")

if [ ${#failed[@]} -gt 0 ]; then
	printf 'conformance: FAILED: %s\n' "${failed[@]}"
	exit 1
fi
echo "conformance: all as expected"
