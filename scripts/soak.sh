#!/bin/bash
# soak.sh MINUTES: sessions open, work and close for that long.
set -euo pipefail
cd "$(dirname "$0")/.."
CGO_ENABLED=0 go build -trimpath -o bin/soak ./e2e/soak
scripts/as-user.sh --stage bin/pinfold --stage bin/soak -- ./soak -bin ./pinfold -for "${1:-10}m"
