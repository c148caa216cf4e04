#!/bin/bash
# test.sh [e2e [ARGS…]]: runs every test and ends with one summary.
#
# What needs Podman is compiled here, perhaps as root, and run as the plain user
# through as-user.sh from a folder that user can read; testdata lies beside each
# test binary, so that no test needs the source tree.
# shellcheck disable=SC2317,SC2329 # functions are called through step and by the trap
set -uo pipefail
{ # read whole before it runs, so that an edit meanwhile does no harm
cd "$(dirname "$0")/.." || exit 1
export CGO_ENABLED=0 GOFLAGS=-buildvcs=false PINFOLD_TEST_KERNEL=1
tags=${PINFOLD_TAGS:-remote containers_image_openpgp}
only=${1:-all}
[ $# -gt 0 ] && shift

out=$PWD/out/test
rm -rf "$out"
mkdir -p "$out"
stage=$(mktemp -d "${TMPDIR:-/tmp}/pinfold-test.XXXXXX")
chmod 0755 "$stage"
began=$SECONDS
results=()
failed=0

# A line at least every 30 s: what runs, and the last test that ended.
(
	while sleep 30; do
		step=$(cat "$out/step" 2>/dev/null)
		last=$(grep -h -a -E '^ *--- |^ok ' "$out/$step.log" 2>/dev/null | tail -n 1)
		[ -n "$last" ] || last=$(tail -n 1 "$out/$step.log" 2>/dev/null | tr -d '\r' | cut -c1-100)
		echo "… $step, $((SECONDS - began)) s in all${last:+, last: ${last#"${last%%[![:space:]]*}"}}"
	done
) 2>/dev/null &
ticker=$!
disown "$ticker"
finish() {
	pkill -P "$ticker" 2>/dev/null
	kill "$ticker" 2>/dev/null
	rm -rf "$stage"
}
trap finish EXIT
trap 'exit 130' INT TERM

# step NAME CMD…: output goes to out/test/NAME.log; of a failure its end is shown.
step() {
	local name=$1 start=$SECONDS code skipped
	shift
	echo "$name" >"$out/step"
	echo "== $name"
	"$@" >"$out/$name.log" 2>&1
	code=$?
	skipped=$(grep -a -c -E '^ *--- SKIP' "$out/$name.log")
	local passed
	passed=$(grep -a -c -E '^ *--- PASS' "$out/$name.log")
	local line
	if [ $code = 0 ]; then
		line=$(printf 'ok    %-34s %4d s  %s' "$name" $((SECONDS - start)) "$passed passed, $skipped skipped")
	else
		failed=$((failed + 1))
		line=$(printf 'FAIL  %-34s %4d s  exit %d; whole output: %s' "$name" $((SECONDS - start)) "$code" "out/test/$name.log")
		grep -a -E '^ *--- FAIL' "$out/$name.log" | head -n 40
		tail -n 80 "$out/$name.log"
	fi
	results+=("$line")
	if [ "$skipped" != 0 ]; then
		while read -r line; do results+=("        $line"); done < <(grep -a -E -A 1 '^ *--- SKIP' "$out/$name.log" | head -n 40)
	fi
	echo "$line"
	return $code
}

# tagged TAG: the packages with test files behind a build tag.
tagged() {
	git ls-files --cached --others --exclude-standard -- '*_test.go' | while read -r f; do
		[ -f "$f" ] && grep -q -E "^//go:build ([^!]*[ (])?$1\b" "$f" && dirname "$f"
	done | sort -u
}

# names TAG DIR: a pattern of the tests in files behind a tag. The others of the
# package ran in the step "unit".
names() {
	git ls-files --cached --others --exclude-standard -- "$2/*_test.go" | while read -r f; do
		[ "$(dirname "$f")" = "$2" ] && [ -f "$f" ] && grep -q -E "^//go:build ([^!]*[ (])?$1\b" "$f" &&
			sed -n -E 's/^func (Test[A-Za-z0-9_]*)\(t \*testing\.T\).*/\1/p' "$f"
	done | paste -sd '|' | sed 's/.*/^(&)$/'
}

# compile PACKAGE-DIR TAGS: compiles its tests into the stage.
compile() {
	local dir=$1 name=${1//\//-}
	mkdir -p "$stage/$name"
	go test -c -trimpath -tags "$2" -o "$stage/$name/test" "./$dir" || return 1
	[ -d "$dir/testdata" ] && cp -r --no-preserve=ownership "$dir/testdata" "$stage/$name/"
	chmod -R a+rX "$stage"
}

as_user() { # as_user DIR CMD…: in a folder of the stage, as the plain user
	local dir=$1
	shift
	# shellcheck disable=SC2016 # expanded there
	scripts/as-user.sh -- bash -c 'cd "$1" && shift && exec "$@"' as-user "$dir" "$@"
}

# The TypeScript client comes from wherever npm is configured to fetch; the lock
# file holds versions and digests only.
typescript() {
	local want have=out/typescript
	want=$(cat e2e/typescript/package-lock.json e2e/typescript/package.json | sha256sum | cut -c1-16)
	if [ "$(cat "$have/.lock" 2>/dev/null)" != "$want" ]; then
		rm -rf "$have"
		mkdir -p "$have"
		cp e2e/typescript/package*.json "$have/"
		(cd "$have" && npm ci --no-audit --no-fund --ignore-scripts) || return 1
		echo "$want" >"$have/.lock"
	fi
	mkdir -p "$stage/typescript"
	cp -r --no-preserve=ownership "$have/." e2e/typescript/*.mjs "$stage/typescript/"
	chmod -R a+rX "$stage/typescript"
}

step build make build
if [ "$only" = all ]; then
	step lint scripts/lint.sh
	step unit go test -tags "$tags" -v -timeout 15m ./...
fi
step typescript-client typescript
if [ -x bin/pinfold ] && cp bin/pinfold "$stage/pinfold" && chmod 0755 "$stage/pinfold"; then
	export PINFOLD_BIN=$stage/pinfold PINFOLD_TYPESCRIPT=$stage/typescript
	step image as_user "$stage" ./pinfold image build
	cp scripts/mini-image.sh "$stage/" && chmod 0755 "$stage/mini-image.sh"
	step mini-image as_user "$stage" ./mini-image.sh
	if [ "$only" = all ]; then
		for dir in $(tagged podman); do
			name=podman-${dir//\//-}
			step "compile-$name" compile "$dir" "$tags podman" &&
				step "$name" as_user "$stage/${dir//\//-}" ./test -test.v -test.timeout 15m -test.run "$(names podman "$dir")"
		done
	fi
	for dir in $(tagged e2e); do
		name=e2e-${dir//\//-}
		step "compile-$name" compile "$dir" "$tags e2e" &&
			step "$name" as_user "$stage/${dir//\//-}" ./test -test.v -test.timeout 25m "$@"
	done
	[ "$only" = all ] && step conformance scripts/conformance.sh
fi

echo
echo "summary, $((SECONDS - began)) s"
printf '  %s\n' "${results[@]}"
if [ $failed != 0 ]; then
	echo "FAILED: $failed of ${#results[@]} steps"
	exit 1
fi
echo "all passed"
exit 0
}
