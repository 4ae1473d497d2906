# Weir. `make demo` shows it at work, `make test` and `make test-long` test it. They install the
# packages that they need (Debian, as root).

GO       ?= go
BIN      := bin/weir
# How long each fuzz target runs, and how many decisions the differ compares, in `make fuzz`.
FUZZTIME ?= 15s
DECISIONS ?= 1000000
# Where `make install` puts things.
DESTDIR  ?=
PREFIX   ?= /usr/local

TOOL     := $(GO) tool -modfile=tools/go.mod
export CGO_ENABLED = 0

.PHONY: all build demo test race check bench bench-docs gen fuzz install uninstall deps clean
all: build

build:
	@mkdir -p bin
	$(GO) build -trimpath -ldflags "-X main.commit=$$(git rev-parse HEAD 2>/dev/null)" \
		-o $(BIN) ./cmd/weir
	cd store/etcd && $(GO) build -trimpath \
		-ldflags "-s -w -X main.builtFrom=$$(git rev-parse HEAD 2>/dev/null)" \
		-o $(CURDIR)/bin/weir-store ./cmd/weir-store

# The main functions, in temporary namespaces. Needs root.
demo: deps build
	@./$(BIN) demo

# The tests that a commit has to pass before it is made. Target: five minutes on two idle
# processors. Without root, those that need it skip; WEIR_CI=1 turns such a skip into a failure.
test: deps
	@[ "$$(id -u)" = 0 ] || \
		echo "test: NOT ROOT: everything that needs the kernel will be skipped" >&2
	@$(GO) run ./test/run short

# The other tests, whose names begin with TestLong: packages, boots, loads, other programs, random
# input beyond the first rounds. COUNT=5 runs each five times.
.PHONY: test-long
test-long: deps
	@$(GO) run ./test/run long $(if $(COUNT),-count=$(COUNT))

# Fails if a test passed neither in the last `make test` nor in the last `make test-long`.
.PHONY: verify-tests
verify-tests:
	@$(GO) run ./test/run check

# The tests of both runs under the race detector, which needs a C compiler. Without the packages
# whose tests run programs, the kernel or the source rather than our goroutines, and without a
# thousand hosts, whose handshakes would take minutes.
race: deps
	@CGO_ENABLED=1 $(GO) test -race -timeout 45m -skip TestLongManyHosts $$($(GO) list ./... | \
		grep -v -e /test$$ -e /firewall/kernel$$ -e /internal/arch$$)
	@cd store/etcd && CGO_ENABLED=1 $(GO) test -race -timeout 45m -skip TestLong ./...

# Everything that a reviewer should not have to check by hand.
CHECKS := check-format check-vet check-static check-shell check-tidy check-cross check-light \
	check-generated check-vuln
check: deps $(CHECKS)
	@echo "check: all passed"

.PHONY: $(CHECKS)
GOFILES = $(shell git ls-files --cached --others --exclude-standard '*.go')
check-format:
	@bad=$$(gofmt -l $(GOFILES)); [ -z "$$bad" ] || { echo "run gofmt -w on:" $$bad >&2; exit 1; }
	@clang-format-14 --dry-run -Werror bpf/lib/*.h bpf/*.c
	@echo "check: gofmt, clang-format"
check-vet:
	@$(GO) vet ./...
	@$(GO) vet -tags netkit,vlan,wireguard ./firewall/kernel ./test
	@for module in peers store/etcd; do (cd $$module && $(GO) vet ./...) || exit 1; done
	@cd peers && $(GO) test ./internal/only
	@echo "check: vet"
check-static:
	@$(TOOL) staticcheck ./...
	@for module in peers store/etcd; do \
		(cd $$module && $(GO) tool -modfile=$(CURDIR)/tools/go.mod staticcheck ./...) || exit 1; done
	@echo "check: staticcheck"
check-shell:
	@shellcheck .ci/run $$(git grep -l '^#!/bin/bash' -- scripts dist)
	@shellcheck -s sh dist/package/steps dist/package/postinst dist/package/p*rm
	@echo "check: shellcheck"
check-tidy:
	@$(GO) mod tidy -diff
	@for module in tools peers store/etcd; do (cd $$module && $(GO) mod tidy -diff) || exit 1; done
	@echo "check: go.mod is tidy"
# Other programs import these, also on systems on which Weir itself does not run.
PUBLIC = $(addprefix ./,$(shell cat internal/arch/libraries.txt))
check-cross:
	@for os in darwin windows; do GOOS=$$os $(GO) build $(PUBLIC) || exit 1; done
	@GOARCH=arm64 $(GO) build ./...
	@cd store/etcd && GOARCH=arm64 $(GO) build -o /dev/null ./cmd/weir-store
	@echo "check: builds for arm64; public libraries for darwin and windows"
check-light:
	@scripts/verify-light
check-generated:
	@scripts/verify-generated
check-vuln:
	@scripts/vulncheck

# Generated files: eBPF objects with their Go bindings, and whatever else a //go:generate line makes.
# The line in the copy of wireguard-go's package is left out: its tool is not among ours.
gen: deps
	@scripts/bench-docs
	$(GO) generate -skip stringer ./...

# The kernel engine on the kernels of Debian 12, 13 and their backports, for amd64 and arm64, under
# qemu without hardware virtualization. Takes ten minutes for each on a busy machine; KERNELS selects
# some, for example trixie/arm64.
.PHONY: test-kernels
test-kernels:
	scripts/kernels/run $(KERNELS)

# The tests of the Debian package on the releases of Debian, with their systemd; as root.
.PHONY: test-releases
test-releases: deps
	scripts/releases $(RELEASES)

# Attacks on a protected host and the losses of its legitimate users; exit status 1 when a target is
# missed. Takes about an hour; as root, with nft. A whole run is kept for `make bench-docs`, also
# with targets missed.
.PHONY: siege
siege: deps build
	@mkdir -p bench-out
	bash -o pipefail -c '$(GO) run ./test/siege $(if $(ONLY),-only "$(ONLY)") | \
		tee $(if $(ONLY),/dev/null,bench-out/siege.md)'

# Ten minutes of disturbances under checksummed streams and probes of refused ports; exit status 1
# on a violation.
.PHONY: chaos
chaos: deps build
	$(GO) run ./test/siege -chaos $(or $(FOR),10m) $(if $(SEED),-seed $(SEED))

# Random input for FUZZTIME per target, the differ over DECISIONS decisions, and every test with
# random input on input that is new. `make test` has the same input each time.
fuzz: deps
	scripts/fuzz $(FUZZTIME)
	WEIR_SEED=random WEIR_DECISIONS=$(DECISIONS) $(GO) test -count=1 -timeout 30m \
		-run '^Test(Explain)?Differ$$|^TestRandomRules$$' \
		./firewall/soft ./firewall/kernel ./test/netfilter
	WEIR_SEED=random $(GO) test -count=1 -timeout 30m $$(grep -rl --include=*_test.go \
		'testrand\.Seed' . | xargs -n1 dirname | sort -u)

# A benchmark prints Markdown tables that end in a line `worst ratio: R`. `record` keeps them in
# bench-out/NAME.md for `make bench-docs`, with the time they took, if the run was complete.
record = @mkdir -p bench-out && bash -o pipefail -c '(cd peers && $(GO) run $(2)) | \
	tee bench-out/$(1).part && echo "took: $$(((SECONDS + 59) / 60)) min" | \
	tee -a bench-out/$(1).part' && mv bench-out/$(1).part bench-out/$(1).md
BENCHES := bench-udp bench-overlay bench-packet bench-dial bench-filter bench-pods bench-observe bench-firewall
bench: deps bench-time $(BENCHES)
# How long each benchmark takes, by its page.
.PHONY: bench-time
bench-time:
	@scripts/bench-time $(BENCHES:bench-%=%)
# Package udp against golang.org/x/net; as root.
.PHONY: bench-udp
bench-udp:
	$(call record,udp,./udp -rounds 120)
# Package overlay against wireguard-go and Tailscale's fork of it; as root, with iperf3 and ethtool.
.PHONY: bench-overlay
bench-overlay:
	$(call record,overlay,./overlay)
# Package eyeballs against net.Dialer and curl, and package proxy; as root, with curl.
.PHONY: bench-dial
bench-dial: build
	$(call record,dial,./dial)
# Package overlay talking to other people's WireGuard, as root; package eyeballs under gRPC and a database driver.
.PHONY: interop
interop:
	cd peers && $(GO) test -count=1 ./overlay ./dial
# Package packet against tailscale.com/net/packet; gopacket and gVisor for comparison.
.PHONY: bench-packet
bench-packet:
	$(call record,packet,./packet)
# The soft engine against another filter in user space.
.PHONY: bench-filter
bench-filter:
	$(call record,filter,./filter -rounds 300 -slice 300us)
# The path to and from pods beside plain routing and other CNI plugins; as root, with containernetworking-plugins, nft and iptables.
.PHONY: bench-pods
bench-pods: build
	$(call record,pods,./pods)
# What watching costs, events per second, memory with a million states; as root.
.PHONY: bench-observe
bench-observe: build
	$(call record,observe,./observe)
# The kernel engine against no firewall and nftables, in namespaces; as root, with nginx and nft.
.PHONY: bench-firewall
bench-firewall:
	$(if $(CASES),cd peers && $(GO) run ./firewall -only $(CASES),$(call record,firewall,./firewall))
# weir-store with 1,000 hosts, beside bare etcd watches.
.PHONY: bench-cluster
bench-cluster: build
	@mkdir -p bench-out
	bash -o pipefail -c '(cd store/etcd && $(GO) run ./cmd/bench-cluster) | \
		tee bench-out/cluster.part && \
		echo "took: $$(((SECONDS + 59) / 60)) min" | tee -a bench-out/cluster.part' && mv bench-out/cluster.part bench-out/cluster.md
# Puts the tables of bench-out into docs/benchmarks.d, and docs/benchmarks.md together.
bench-docs:
	@scripts/bench-docs bench-out

UNITS := weir.service weir-store.service weir-proxy.service
install: build
	install -D -m 755 $(BIN) bin/weir-store -t $(DESTDIR)$(PREFIX)/bin
	install -D -m 644 $(UNITS:%=dist/%) -t $(DESTDIR)/lib/systemd/system
	sed -i 's|/usr/local/bin/weir|$(PREFIX)/bin/weir|' \
		$(UNITS:%=$(DESTDIR)/lib/systemd/system/%)
uninstall:
	rm -f $(DESTDIR)$(PREFIX)/bin/weir $(DESTDIR)$(PREFIX)/bin/weir-store \
		$(UNITS:%=$(DESTDIR)/lib/systemd/system/%)

# Packages in dist/out, for each machine: static binaries, units, manual pages, completions, SBOM.
MACHINES ?= amd64 arm64
.PHONY: deb rpm
deb rpm: deps
	@for machine in $(MACHINES); do GOARCH=$$machine dist/package/build $@ dist/out || exit 1; done

deps:
	@scripts/deps

clean:
	rm -rf bin dist/out
