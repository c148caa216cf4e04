#!/bin/bash
# alive.sh SAY CMD…: runs CMD and prints a line every 20 s while it works, so
# that a person, or a watcher that ends silent jobs, sees that it lives.
set -euo pipefail
say=$1
shift
began=$SECONDS
(
	while sleep 20; do echo "… $say, $((SECONDS - began)) s"; done
) 2>/dev/null & # or it would say that its sleep was ended
ticker=$!
disown "$ticker" # or bash reports its end
# The ticker's sleep would hold our stdout open after we ended.
trap 'pkill -P "$ticker" 2>/dev/null || true; kill "$ticker" 2>/dev/null || true' EXIT
"$@"
