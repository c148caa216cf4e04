#!/bin/bash
# lint.sh: every linter over the whole module; all run, then it fails if one did.
# The Go linters are pinned in lint.mod, apart from what the product needs.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
export CGO_ENABLED=0 GOFLAGS=-buildvcs=false
tags=${PINFOLD_TAGS:-remote containers_image_openpgp}
failed=()

step() { # step NAME CMD…: fails when the command does
	local name=$1 began=$SECONDS
	shift
	if scripts/alive.sh "$name" "$@"; then
		echo "lint: $name: ok ($((SECONDS - began)) s)"
	else
		echo "lint: $name: FAILED"
		failed+=("$name")
	fi
}

silent() { # silent CMD…: fails when the command prints anything
	local out
	out=$("$@" 2>&1) || { echo "$out"; return 1; }
	[ -z "$out" ] || { echo "$out"; return 1; }
}

# An error of a Close after reading, or on the way out of a failure, tells nobody anything.
unchecked() {
	local out
	out=$(out/lint/errcheck -tags "$tags podman e2e" -ignoretests -exclude scripts/errcheck.txt ./... 2>&1 | grep -v -E '[.}][Cc]lose\(')
	[ -z "$out" ] || { echo "$out"; return 1; }
}

mapfile -t go_files < <(git ls-files --cached --others --exclude-standard -- '*.go')
mapfile -t shell_files < <(git ls-files --cached --others --exclude-standard -- '*.sh' .ci/run)
mapfile -t text_files < <(git ls-files --cached --others --exclude-standard -- '*.go' '*.md' '*.sh' '*.yaml' '*.txt' Makefile | grep -v /testdata/)

step tools go build -modfile=lint.mod -o out/lint/ tool
export -f silent unchecked
export tags
step gofmt bash -c 'silent gofmt -l "$@"' gofmt "${go_files[@]}"
# staticcheck includes vet's own checks of the tests that `go vet` runs; both,
# since they differ in what they know of the language's newest version.
step vet go vet -tags "$tags podman e2e" ./...
step staticcheck out/lint/staticcheck -tags "${tags// /,},podman,e2e" -tests ./...
step errcheck bash -c unchecked
step ineffassign out/lint/ineffassign ./...
step misspell out/lint/misspell -error -i descripton "${text_files[@]}"
if command -v shellcheck >/dev/null 2>&1; then
	step shellcheck shellcheck "${shell_files[@]}"
else
	echo "lint: shellcheck: FAILED: not installed; run make setup"
	failed+=(shellcheck)
fi

if [ ${#failed[@]} -gt 0 ]; then
	echo "lint: FAILED: ${failed[*]}"
	exit 1
fi
echo "lint: all passed"
