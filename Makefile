# Pinfold. `make help` lists the targets. Everything that needs a build tag,
# a linker flag or another user is arranged here, so nobody has to remember it.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# The bindings' remote client needs no C library; neither does anything else.
export CGO_ENABLED := 0
export GOFLAGS := -buildvcs=false
# Where Go's own archive puts it, for whoever has not added that to PATH.
export PATH := $(PATH):/usr/local/go/bin
TAGS    := remote containers_image_openpgp
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X main.version=$(VERSION)
GUESTS  := sandbox/guest/embed/pinfold-guest-amd64 sandbox/guest/embed/pinfold-guest-arm64
export PINFOLD_TAGS := $(TAGS)

.PHONY: help setup build guest image demo test unit bench lint golden conformance soak e2e clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install what is missing (apt, as root or through sudo), make the plain user when run as root
	@scripts/setup.sh

guest: ## build the guest for amd64 and arm64
	@for arch in amd64 arm64; do \
		echo "building the guest for $$arch"; \
		GOARCH=$$arch scripts/alive.sh "building the guest for $$arch" go build -trimpath -ldflags '-s -w -buildid=' -o sandbox/guest/embed/pinfold-guest-$$arch ./cmd/pinfold-guest; \
	done

build: guest ## build bin/pinfold (some minutes the first time)
	@echo "building bin/pinfold $(VERSION)"
	@scripts/alive.sh "building bin/pinfold" go build -trimpath -tags '$(TAGS)' -ldflags '$(LDFLAGS)' -o bin/pinfold ./cmd/pinfold

image: build ## build the sandbox image (some minutes, 4.5 GB; nothing to do the second time)
	@scripts/as-user.sh --stage bin/pinfold -- ./pinfold image build

demo: setup build image ## play one real MCP session over stdio, from nothing to nothing left
	@scripts/alive.sh "building bin/demo" go build -trimpath -o bin/demo ./e2e/demo
	@scripts/as-user.sh --stage bin/pinfold --stage bin/demo -- ./demo -bin ./pinfold

test: ## run every test: linters, unit, contract, end to end against real Podman
	@scripts/setup.sh --tests
	@scripts/test.sh

unit: ## run the tests that need no Podman
	@go test -tags '$(TAGS)' ./...

e2e: build image ## run the end-to-end tests only; ARGS are passed to the test binary
	@scripts/test.sh e2e $(ARGS)

bench: build image ## measure: calls, sessions, browser, beside Podman's own exec
	@scripts/alive.sh "building bin/bench" go build -trimpath -tags '$(TAGS)' -o bin/bench ./e2e/bench
	@scripts/as-user.sh --stage bin/pinfold --stage bin/bench -- ./bench -bin ./pinfold $(ARGS)

lint: ## run gofmt, vet, staticcheck, errcheck, ineffassign, misspell, shellcheck
	@scripts/lint.sh

golden: ## rewrite the golden files from what the code does now
	@for dir in $$(git grep -l 'flag.Bool("update"' -- '*_test.go' | xargs -n 1 dirname | sort -u); do \
		go test -tags '$(TAGS)' "./$$dir" -update; \
	done
	@git status --short -- '*testdata*'

conformance: build image ## run the official MCP conformance suite and the Inspector
	@scripts/conformance.sh

soak: build image ## open, use and close sessions for MINUTES (10), and count what is left
	@scripts/soak.sh $(or $(MINUTES),10)

clean: ## remove what was built; images and sandboxes stay
	@rm -rf bin out $(GUESTS)
