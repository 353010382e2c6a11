# The list of targets. `make` or `make help` prints it; CI runs the same targets.

.DEFAULT_GOAL := help
SHELL := /bin/bash
CARGO ?= cargo
PROFILE ?= profiles/audio.ini
FUZZ_SECONDS ?= 30
MINUTES ?= $(if $(filter soak,$(MAKECMDGOALS)),120,60)
ROUNDS ?= 20
SEEDS ?= 10000
FUZZ_TOOLCHAIN ?= nightly
PEERS := target/peers
# The NATS server of the tests of fleets: that in PATH, or else one that is built.
NATS_SERVER := $(or $(shell command -v nats-server),$(PEERS)/bin/nats-server)
NATS_PATH := $(abspath $(dir $(NATS_SERVER))):$(PATH)

# Backtraces with line numbers, and small, fast builds. The same setting everywhere, so that a contributor's machine and
# CI have the same build outputs.
export CARGO_PROFILE_DEV_DEBUG := line-tables-only
# What `make test` and `make test-fleet` build, the same for both. No comment has an example to run, which the tidy test checks,
# and clippy compiles examples and benchmarks.
TESTS := --workspace --locked --lib --bins --tests
# Tests that run the program mostly wait, so run many more of them than there are cores.
export RUST_TEST_THREADS ?= $(shell echo $$((4 * $$(nproc))))

.PHONY: help
help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "  PROFILE=$(PROFILE)  FUZZ_SECONDS=$(FUZZ_SECONDS)  MINUTES=$(MINUTES)  SEEDS=$(SEEDS)  FUZZ_TOOLCHAIN=$(FUZZ_TOOLCHAIN)"

.PHONY: bench
bench: ## The main job: benchmark our relay with PROFILE
	$(CARGO) run --release --locked --bin weir -- bench $(PROFILE)

.PHONY: test
test: lint doc ## Everything a change has to pass
	$(CARGO) test $(TESTS)

.PHONY: lint
lint: ## Formatting and clippy
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

.PHONY: doc
doc: ## The crates' documentation; a broken link is an error
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked

.PHONY: test-drafts
test-drafts: ## The relay's stories with clients of each draft (`make test` has them in the newest, and the pairs of all)
	@for draft in 22 21 20 19 18; do echo "== draft-$$draft"; WEIR_DRAFT=$$draft $(CARGO) test --locked -p weir-relay --test relay || exit 1; done

.PHONY: hostile
hostile: ## Honest subscribers beside hostile sessions, on a relay in a cgroup of 512 MB, into docs/hard-results.md (eleven minutes; needs root)
	$(CARGO) build --release --locked --bin weir
	scripts/hostile.sh target/release/weir --results docs/hard-results.md

.PHONY: soak
soak: ## A relay for MINUTES (120 for 10^8 objects): memory, file descriptors or timers that grow fail; into docs/hard-results.md
	$(CARGO) build --release --locked --bin weir
	scripts/soak.sh target/release/weir --minutes $(MINUTES) --results docs/hard-results.md

.PHONY: kills
kills: ## kill -9 of a publisher, the relay and a viewer, 50 times each, into docs/hard-results.md (twenty minutes; needs node, ffmpeg, openssl)
	$(CARGO) build --release --locked --bin weir
	node scripts/kills.mjs target/release/weir --results docs/hard-results.md

.PHONY: seeds
seeds: ## SEEDS random stories of the relay (10,000): loss, reordering, wrong bits, cut links, clients and relays that vanish; each twice, with equal packets
	WEIR_SEEDS=$(SEEDS) $(CARGO) test --release --locked -p weir-relay --test relay -- --nocapture seeds::

.PHONY: test-fleet
test-fleet: $(NATS_SERVER) ## Agents on several hosts, relays of a fleet (needs nats-server 2.11 or later, or Go to build it)
	PATH="$(NATS_PATH)" $(CARGO) test --workspace --locked --test program -- --ignored agents:: fleet::
	PATH="$(NATS_PATH)" $(CARGO) test --workspace --locked --bin weir -- --ignored --test-threads=1 remote:: nats_registry::

.PHONY: fleet-demo
fleet-demo: $(NATS_SERVER) ## Three NATS servers and three relays; kills the relay of a page and shows the gap (needs node, ffmpeg, openssl)
	$(CARGO) build --release --locked --bin weir
	PATH="$(NATS_PATH)" node scripts/fleet.mjs target/release/weir --demo

.PHONY: results-fleet
results-fleet: $(NATS_SERVER) ## What viewers notice of failures of a fleet, into docs/fleet-results.md (an hour; ROUNDS=20; needs root, unshare, ip, nft, chromium)
	$(CARGO) build --release --locked --bin weir
	cd web && npm ci --no-audit --no-fund --silent
	PATH="$(NATS_PATH)" node scripts/fleet.mjs target/release/weir --results docs/fleet-results.md --rounds $(ROUNDS)

.PHONY: fleet-sim
fleet-sim: ## A fleet of 1,000 relays and 20,000 viewers in virtual time, into docs/fleet-results.md
	$(CARGO) test --locked -p weir-relay --test relay -- --ignored --exact --nocapture \
	  fleet_failures::a_thousand_relays_serve_twenty_thousand_viewers | node scripts/fleet.mjs - --sim docs/fleet-results.md

.PHONY: fleet-hops
fleet-hops: $(NATS_SERVER) ## What one more relay costs in latency and CPU, into docs/fleet-results.md (five minutes, a quiet machine)
	$(CARGO) build --release --locked --bin weir
	PATH="$(NATS_PATH)" node scripts/fleet.mjs target/release/weir --hops docs/fleet-results.md

.PHONY: fleet-topology
fleet-topology: ## The draft's own topology in three network namespaces: its Table 4 (needs root, ip, nats-server)
	$(CARGO) build --release --locked --bin weir
	scripts/topology.sh target/release/weir --results docs/fleet-results.md

.PHONY: test-web
test-web: ## The page: types, vectors, and stories in a real browser (needs node, npm, chromium, ffmpeg, openssl)
	cd web && npm ci --no-audit --no-fund --silent && npx tsc
	node --test web/test/
	$(CARGO) build --locked --bin weir
	WEIR=$(CURDIR)/target/debug/weir node --test --test-concurrency=1 --test-reporter=spec web/browser/

.PHONY: soak-web
soak-web: ## Play for MINUTES (an hour) in Chromium; memory or delay that grows fails; into docs/results.md
	cd web && npm ci --no-audit --no-fund --silent
	$(CARGO) build --release --locked --bin weir
	WEIR=$(CURDIR)/target/release/weir node web/browser/soak.mjs $(MINUTES) docs/results.md

.PHONY: fuzz
fuzz: ## Each fuzz target for FUZZ_SECONDS (needs FUZZ_TOOLCHAIN and cargo-fuzz)
	scripts/fuzz-corpus.sh unpack
	@for target in $$($(CARGO) +$(FUZZ_TOOLCHAIN) fuzz list); do \
		echo "== $$target: $(FUZZ_SECONDS) s"; \
		$(CARGO) +$(FUZZ_TOOLCHAIN) fuzz run $$target -- \
			-max_total_time=$(FUZZ_SECONDS) -print_final_stats=1 || exit 1; \
	done

.PHONY: results-fuzz
results-fuzz: ## Each fuzz target for FUZZ_SECONDS on one core; the sum of all such runs into docs/hard-results.md
	scripts/fuzz.sh run $(FUZZ_SECONDS)
	scripts/fuzz.sh results docs/hard-results.md

.PHONY: fuzz-corpus
fuzz-corpus: ## Put what `make fuzz` found into the committed corpora, as far as the coverage needs it
	FUZZ_TOOLCHAIN=$(FUZZ_TOOLCHAIN) scripts/fuzz-corpus.sh minimize
	scripts/fuzz-corpus.sh pack

.PHONY: interop
interop: $(addprefix $(PEERS)/bin/,moq-test-client moq-relay-ietf moq-relay moq-pub moq-sub moq moqtail-peer tquic_server) ## Other people's conformance cases, relays and clients against ours
	$(CARGO) build --release --locked --bin weir
	interop/moq-test-client.sh --client $(PEERS)/bin/moq-test-client --weir target/release/weir
	interop/http3.sh --weir target/release/weir --peers $(PEERS)/bin
	cd web && npm ci --no-audit --no-fund --silent
	cd interop/moq-net && npm ci --no-audit --no-fund --silent
	interop/relays.sh --weir target/release/weir --peers $(PEERS)/bin --results docs/interop.md
	interop/upstreams.sh --weir target/release/weir --peers $(PEERS)/bin --results docs/interop.md

.PHONY: interop-upstreams
interop-upstreams: $(addprefix $(PEERS)/bin/,moq-relay-ietf moq-relay) ## Chains of our relay and others (--upstream), into docs/interop.md (five minutes)
	$(CARGO) build --release --locked --bin weir
	interop/upstreams.sh --weir target/release/weir --peers $(PEERS)/bin --results docs/interop.md

.PHONY: generator-memory
generator-memory: ## The load generator's memory from 10^6 to 10^7 objects (four minutes)
	$(CARGO) build --release --locked --bin weir
	target/release/weir bench profiles/audio.ini --subscribers 1000 --ramp 500 --seconds 210 --slo 'loss<100%' --json target/generator-memory.json > target/generator-memory.txt || true
	scripts/generator-memory.sh target/generator-memory.json

.PHONY: results-relays
results-relays: $(addprefix $(PEERS)/bin/,moq-relay-ietf moq-relay) ## What our relay and others carry, into docs/results.md (half an hour, an hour at most; a quiet machine)
	$(CARGO) build --release --locked --bin weir
	PATH="$(abspath $(PEERS)/bin):$$PATH" target/release/weir bench compare profiles/relays.toml --find-max --results docs/results.md

.PHONY: results-threads
results-threads: ## What our relay carries with 1, 2, 4 and 8 threads, into docs/results.md (five minutes; needs more than two cores)
	$(CARGO) build --release --locked --bin weir
	scripts/threads.py target/release/weir docs/results.md

.PHONY: results-wires
results-wires: $(PEERS)/bin/moq-relay-ietf ## The draft's scenario 2 beside its older form (--wire qperf), into docs/results.md (six minutes)
	$(CARGO) build --release --locked --bin weir
	PATH="$(abspath $(PEERS)/bin):$$PATH" target/release/weir bench compare profiles/wires.toml --results docs/results.md

.PHONY: results-audiences
results-audiences: $(PEERS)/bin/moq-relay-ietf ## What sockets, threads and acknowledgements of subscribers cost relays, into docs/results.md (15 minutes)
	$(CARGO) build --release --locked --bin weir
	PATH="$(abspath $(PEERS)/bin):$$PATH" target/release/weir bench compare profiles/audiences.toml --results docs/results.md

.PHONY: results-drafts
results-drafts: ## What the newest and the oldest draft cost our relay, into docs/results.md (four minutes)
	$(CARGO) build --release --locked --bin weir
	target/release/weir bench compare profiles/drafts.toml --results docs/results.md

.PHONY: results-live-relays
results-live-relays: $(addprefix $(PEERS)/bin/,moq-relay-ietf moq-relay) ## Live streams through other relays over slow links, into docs/results.md (40 minutes; a quiet machine)
	$(CARGO) build --release --locked --bin weir
	scripts/live-relays.sh target/release/weir $(PEERS)/bin --seeds 2 --results docs/results.md

.PHONY: results-probe
results-probe: $(PEERS)/bin/moq-relay-ietf $(PEERS)/bin/moq-relay ## Conformance and robustness of our relay and others, into docs/probe-results.md (an hour)
	$(CARGO) build --release --locked --bin weir
	scripts/probe.sh target/release/weir $(PEERS)/bin --results docs/probe-results.md

$(PEERS)/bin/moq-test-client:
	$(CARGO) install --locked --root $(PEERS) moq-test-client@0.2.0

$(PEERS)/bin/moq-relay-ietf:
	$(CARGO) install --locked --root $(PEERS) moq-relay-ietf@0.8.0

$(PEERS)/bin/moq-relay:
	$(CARGO) install --root $(PEERS) --no-default-features --features noq,websocket moq-relay@0.17.10

$(PEERS)/bin/moq-pub $(PEERS)/bin/moq-sub:
	$(CARGO) install --locked --root $(PEERS) moq-pub@0.10.0 moq-sub@0.5.0

$(PEERS)/bin/moq: # Without optimisation: with it, it takes more than 20 minutes on two cores
	$(CARGO) install --debug --root $(PEERS) --no-default-features --features noq,websocket moq-cli@0.14.10

$(PEERS)/bin/moqtail-peer: $(wildcard interop/moqtail/Cargo.* interop/moqtail/src/*)
	$(CARGO) install --debug --locked --root $(PEERS) --path interop/moqtail

.PHONY: contenders
contenders: $(addprefix $(PEERS)/bin/,tquic_server caddy quinn-h3 tokio-quiche-h3 quic-go) ## Other people's HTTP/3 servers, to compare with (weir h3 compare)
	@for server in gtlsserver nginx http_server; do \
		PATH="$(abspath $(PEERS)/bin):$$PATH" command -v $$server >/dev/null || echo "missing: $$server; docs/h3.md says where it is from"; \
	done

$(PEERS)/bin/tquic_server: # Also makes tquic_client; needs cmake and libclang (Debian: libclang-dev)
	$(CARGO) install --locked --root $(PEERS) tquic_tools@1.6.0

$(PEERS)/bin/nats-server: # Needs Go
	GOBIN=$(abspath $(PEERS)/bin) go install github.com/nats-io/nats-server/v2@v2.15.2

$(PEERS)/bin/caddy: # Needs Go
	GOBIN=$(abspath $(PEERS)/bin) go install github.com/caddyserver/caddy/v2/cmd/caddy@v2.11.9

$(PEERS)/bin/quinn-h3: $(wildcard contenders/quinn-h3/Cargo.* contenders/quinn-h3/src/*)
	$(CARGO) install --locked --root $(PEERS) --path contenders/quinn-h3

$(PEERS)/bin/tokio-quiche-h3: $(wildcard contenders/tokio-quiche/Cargo.* contenders/tokio-quiche/src/*) # Needs cmake and libclang (Debian: libclang-dev)
	$(CARGO) install --locked --root $(PEERS) --path contenders/tokio-quiche

$(PEERS)/bin/quic-go: $(wildcard contenders/quic-go/*) # Needs Go
	cd contenders/quic-go && GOBIN=$(abspath $(PEERS)/bin) go install .

.PHONY: live-demo
live-demo: ## A live stream from ffmpeg over a link of 500 kbit/s, with a report (needs ffmpeg)
	$(CARGO) build --release --locked --bin weir
	scripts/live-demo.sh target/release/weir

.PHONY: results-h3
results-h3: contenders ## HTTP/3 servers side by side, into docs/results.md (ten minutes on a quiet machine)
	$(CARGO) build --release --locked --bin weir
	PATH="$(abspath $(PEERS)/bin):$$PATH" target/release/weir h3 compare profiles/contenders.toml \
		--results docs/results.md --html target/h3-compare.html --json target/h3-compare.json

.PHONY: floor
floor: ## What a datagram costs at the very least on this machine
	$(CARGO) bench --locked -p weir-net --bench floor

.PHONY: cost
cost: $(PEERS)/bin/moq-relay-ietf ## What a delivered datagram costs: our relay beside the floor, the engine alone and another relay (6 minutes)
	scripts/cost.sh --other 'moq-relay-ietf=$(PEERS)/bin/moq-relay-ietf --bind 127.0.0.1:15443 --tls-cert %cert% --tls-key %key%'

.PHONY: instructions
instructions: ## Count the instructions of the fan-out, of HTTP/3 requests and of the relay's longest turns; more than the committed ones fails
	$(CARGO) build --release --locked -p weir-counted
	scripts/count-instructions.sh
	scripts/count-turns.sh

.PHONY: memory
memory: ## What a session costs the relay in memory, idle and subscribed; more than it may fails
	$(CARGO) build --release --locked -p weir --bin weir --example memory
	target/release/examples/memory target/release/weir

.PHONY: lines
lines: ## Lines of shipped Rust, tests, JavaScript and documents, per crate (in COMMIT, or in the working tree)
	@scripts/count-lines.sh $(COMMIT)

.PHONY: deny
deny: ## Licences, advisories and sources of the dependencies (needs cargo-deny)
	$(CARGO) deny --locked check

.PHONY: clean
clean: ## Remove what was built
	$(CARGO) clean
