# build     both programs, static, into bin/
# try       the whole job with real parts in a scratch home (YES=1 approves by itself)
# test      everything: formatting, vet, macOS builds, all tests with the race detector
# crash     every step of every durable write stopped or failing (long); make test takes a sample
# controls  that each test of a control fails when the control is removed (long; goes on where it stopped)
# screenshots  every view of the console, light and dark, into dist/screenshots
# hosts     the released Claude Code, Codex and Gemini CLI against a stand-in for their model, offline
#           (installs a gigabyte from npm; UPDATE=1 writes the golden files)
# s3        signatures against versitygw, an S3 server that checks them (builds it, which takes minutes)
# bench     what it costs, ratios first
# package   what people install, in dist/: archives, Debian packages, a Homebrew formula and SHA256SUMS
#           (PLATFORMS=linux/amd64,linux/arm64,darwin/universal; MACOS_SIGN is a command that signs a program for macOS)
# install   the same files below DESTDIR and PREFIX, for this platform
# kernels   the evidence under Debian's own kernels, in virtual machines (minutes; fetches kernels by apt)
# help      this list

GO      ?= go
YES     ?=
UPDATE  ?=
DESTDIR ?=
PREFIX  ?= /usr/local
PLATFORMS ?= linux/amd64,linux/arm64,darwin/universal
MACOS_SIGN ?=
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo 0.0.0-dev)

# Tests of the ledger's and the vault's files that read them thousands of times from one goroutine:
# the race detector has nothing to see there and makes SQLite ten times slower.
ALONE := ^(TestA03_(EveryByteOfARowCounts|TamperingIsReported|EveryColumnIsReported|LastRowsInTheDatabase|LogOfTheDatabase|RetiredOperationsAreChecked|WhatHeadsNotice|MissingAndAddedOperationsAreNamed)|TestSpoiledJournal|TestEveryByteOfTheJournalCounts|TestVerifySeesEveryRow|TestEndedOperationsRetire|TestWhatStillDecidesStays|TestStartIsShort|TestA06_(EveryStep(Stops|OfAReplayStops)|KilledAnywhere)|TestChangedBetweenTwoRuns|TestTamperingUnderARunningLedger|TestAnAcknowledgedChangeStaysAcknowledged|TestDamagedPagesAreReported|TestOldRowsAreCheckedSlowly|TestAcknowledgedOperationsComeBack|TestRowsAreBoundToTheirPlace|TestEpochsComeInOrder|TestEveryByteFlipped(ChecksumMended)?|TestTruncatedAndExtended|TestMemory)$$

.PHONY: help build try test crash controls screenshots hosts s3 bench package install kernels

build:
	CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=false -ldflags '-X main.version=$(VERSION)' -o bin/ ./cmd/...

help:
	@sed -n '/^# /s/^# //p; /^$$/q' $(firstword $(MAKEFILE_LIST))

try: build
	@scripts/need --optional sshd:openssh-server
	@YES=$(YES) bin/yett try

# Everything that is compiled for this system is compiled in two ways only, as
# the programs are shipped and with the race detector: on a machine that has
# compiled nothing yet each way costs almost a minute.
test: export GOFLAGS += -trimpath
test:
	@scripts/need gcc:gcc node:nodejs npm:npm sshd:openssh-server ssh-keygen:openssh-client dropbear:dropbear-bin openssl:openssl setpriv:util-linux prlimit:util-linux \
		dbus-daemon:dbus-daemon chromium:chromium curl:curl python3:python3 dpkg-deb:dpkg ruby:ruby zsh:zsh fish:fish systemd-analyze:systemd nginx:nginx-light groff:groff-base
	@scripts/check-format
	CGO_ENABLED=0 $(GO) vet ./...
	@scripts/build-for-macos arm64
	@scripts/build-for-macos amd64
	@scripts/node-modules
	@# the longest first, so that the others run beside it; a program with the race
	@# detector in it sleeps a second before it exits, unless it is told not to
	GORACE=atexit_sleep_ms=10 CGO_ENABLED=1 $(GO) test -race -ldflags=-w -count=1 -timeout 14m -skip '$(ALONE)' ./internal/yetttest ./...
	CGO_ENABLED=0 $(GO) test -ldflags=-w -count=1 -timeout 10m -run '$(ALONE)' ./internal/ledger ./internal/vault

crash:
	YETT_CRASH=1 $(GO) test -count=1 -timeout 120m -run 'TestA03|TestA06|TestV01|TestA01|Crash' ./internal/ledger ./internal/vault ./internal/yetttest

controls:
	@scripts/need gcc:gcc node:nodejs npm:npm sshd:openssh-server ssh-keygen:openssh-client setpriv:util-linux nginx:nginx-light
	@scripts/node-modules
	@mkdir -p dist
	$(GO) run ./controls -results dist/controls.jsonl

screenshots:
	@scripts/need chromium:chromium npm:npm
	@scripts/screenshots

hosts:
	@scripts/need node:nodejs npm:npm
	@scripts/host-modules
	$(GO) vet -tags hosts ./hosts/...
	UPDATE=$(UPDATE) $(GO) test -tags hosts -count=1 -timeout 20m -parallel 4 ./hosts/...
	$(GO) test -count=1 -run TestD5_CardsOfHostsOnATerminal ./internal/screen $(if $(UPDATE),-args -update)

s3:
	cd internal/yetttest/s3 && $(GO) test -count=1 -timeout 40m .

bench: build
	CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=false -o bin/ ./bench ./bench/baremcp
	bin/bench

package install: export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 0)

package:
	@scripts/need dpkg-deb:dpkg
	$(GO) run ./packaging -version '$(VERSION)' -platforms '$(PLATFORMS)' -macos-sign '$(MACOS_SIGN)' -out dist

install:
	$(GO) run ./packaging -version '$(VERSION)' -install '$(DESTDIR)$(PREFIX)' -prefix '$(PREFIX)'

kernels:
	@scripts/need qemu-system-x86_64:qemu-system-x86
	$(GO) run ./kernels
