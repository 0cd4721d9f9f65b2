# make demo | test | fuzz | build | image | gallery | bench | soak | clean: see README.md.
GO      := $(or $(shell command -v go 2>/dev/null),/usr/local/go/bin/go)
BIN     := bin
ROOMS   := cmd daemon internal packaging rootfs runtime skills systemd uploader
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
GVISOR  := $(shell $(GO) list -m -f '{{.Version}}' gvisor.dev/gvisor)

export CGO_ENABLED = 0
export PATH := $(PATH):/usr/local/go/bin

LDFLAGS       = -s -w -X mediasandbox/internal/version.version=$(VERSION)
RUNSC_LDFLAGS = -s -w -X gvisor.dev/gvisor/runsc/version.version=$(GVISOR)

.PHONY: build deps image demo test test-fresh fuzz check gallery bench soak packages clean

build:
	$(GO) build -trimpath -ldflags "$(RUNSC_LDFLAGS)" -o $(BIN)/runsc ./cmd/runsc
	$(GO) build -trimpath -ldflags "$(LDFLAGS)" -o $(BIN)/ ./cmd/sandboxd ./cmd/sandboxctl ./cmd/sandbox-gate
	$(GO) build -trimpath -ldflags "-s -w" -o $(BIN)/init/sandbox-init ./cmd/sandbox-init

# What the host needs beside Go: to build the image, and to run the tests.
deps:
	@scripts/deps

image: deps build
	$(BIN)/sandboxctl image build

demo: image
	@scripts/demo

check:
	@test -z "$$(gofmt -l $(ROOMS))" || { gofmt -l $(ROOMS); exit 1; }
	$(GO) vet ./...

test: image check
	scripts/test

test-fresh:
	scripts/test-fresh

# Each target for 60 s (FUZZTIME); those of the gate, or of FUZZ, as in FUZZ=./...
fuzz:
	scripts/fuzz $(FUZZ)

gallery: image
	scripts/gallery

bench: image
	$(GO) run ./internal/bench -o docs/bench.md

# The model of what callers do, for longer: SEQUENCES=200 is what make test plays.
SEQUENCES ?= 1500
soak: image
	MEDIA_SANDBOX_SEQUENCES=$(SEQUENCES) $(GO) test ./daemon -run '^TestModel$$' -count=1 -timeout 0 -v

packages: build
	packaging/build

clean:
	rm -rf $(BIN) demo-output dist
