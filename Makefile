# Thalweg. `make help` lists the targets. The first builds need the module cache; everything else is installed by the targets.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
export GOTOOLCHAIN = go1.27.3
# One way to compile for the binaries and for what tests them: packages of generic code take minutes, and are compiled once, without what only debuggers read.
export CGO_ENABLED = 0
export GOFLAGS := $(GOFLAGS) -trimpath -gcflags=all=-dwarf=false -ldflags=-w

VERSION ?= 0.1.0-dev+$(shell git rev-parse --short HEAD 2>/dev/null || echo unknown)
GOBUILD := GOOS=linux GOARCH=amd64 go build -ldflags "-s -w -X github.com/thalweg/thalweg/internal/version.Version=$(VERSION)"

.PHONY: help
help: ## list the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-zA-Z0-9_-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ build

.PHONY: build
build: ## static binaries: bin/thalweg, bin/thalweg-appmaster, bin/thalweg-taskmanager, bin/examples/NAME
	@mkdir -p bin/examples
	$(GOBUILD) -o bin/thalweg ./cmd/client
	$(GOBUILD) -o bin/thalweg-appmaster ./cmd/appmaster
	$(GOBUILD) -o bin/thalweg-taskmanager ./cmd/taskmanager
	$(GOBUILD) -o bin/examples/ ./examples/...

.PHONY: build-faults
build-faults: ## the same with failpoints (docs/failpoints.md), for fault runs: bin/faults
	@mkdir -p bin/faults/examples
	$(GOBUILD) -tags failpoints -o bin/faults/thalweg ./cmd/client
	$(GOBUILD) -tags failpoints -o bin/faults/thalweg-appmaster ./cmd/appmaster
	$(GOBUILD) -tags failpoints -o bin/faults/thalweg-taskmanager ./cmd/taskmanager
	$(GOBUILD) -tags failpoints -o bin/faults/examples/ ./examples/order-totals

.PHONY: demo
demo: ## the order-totals pipeline on an embedded cluster and broker, for a minute: make demo [ARGS="-for 10s"]
	@echo "building the demo (the first time takes a minute or two) ..."
	@go build -o bin/demo ./examples/demo && exec bin/demo $(ARGS) # not go run, which takes Ctrl-C for a failure

##@ tests (the real daemons are those of a cluster of their own, in .cluster-test; nothing of it is left)

# The jars are shared with cluster-up. Packages with tests on real daemons are not among the unit tests.
export TEST_CLUSTER := $(CURDIR)/.cluster-test
RIG := go run ./test/rig/cmd/rig
define with_cluster
export THALWEG_CLUSTER_DIR="$$TEST_CLUSTER" THALWEG_JARS_DIR="$${THALWEG_JARS_DIR:-$(CURDIR)/.cluster/jars}" THALWEG_PORT_BASE="$${THALWEG_PORT_BASE:-26000}"; \
trap 'code=$$?; if [ $$code -eq 0 ]; then $(RIG) down -purge; else $(RIG) down; echo "the daemons'"'"' logs are in $$TEST_CLUSTER/log" >&2; fi' EXIT; \
$(RIG) up
endef
# Temporary files of tests in memory, where there is room: models of state wait for the disk three quarters of their time.
define in_memory
if [ "$$(df --output=avail -B1G /dev/shm 2>/dev/null | tail -n1)" -ge 8 ] 2>/dev/null; then \
  TMPDIR="$$(mktemp -d /dev/shm/thalweg-test.XXXXXX)"; export TMPDIR; trap 'rm -rf "$$TMPDIR"' EXIT; fi
endef
INTEGRATION := go test -count=1 -timeout 25m -v ./test/integration
FAULTS := go test -count=1 -timeout 40m -v -run 'TestFaults|TestSchedule|TestEveryFailpoint' ./test/faults -args
SHORT := -records 20000 -each 1 -broker 1 -rm 1
MODULE := github.com/thalweg/thalweg
RACE := $(shell command -v gcc >/dev/null 2>&1 && echo -race)
# What runs in one process with many goroutines is tested with the race detector: pipelines as a whole, the control plane, the exchange, connectors.
# What takes longest to compile comes first. pebblegozstd leaves out a C library that is not used.
RACED := ./stream ./stream/internal/... ./runtime/... ./connector/... ./checkpoint/...
RACEABLE = CGO_ENABLED=1 go test $(RACE) -tags pebblegozstd -gcflags=all=-dwarf=false -gcflags='$(MODULE)/stream=-dwarf=false -l'
# Models and references, mostly of one goroutine: the race detector makes them ten times as slow (make test-race). State is tested both ways.
SINGLE := runtime/operator|runtime/graph|runtime/scheduler|checkpoint/metadata|checkpoint/inspect
APART := test/integration|test/faults|test/rig|fs/hdfs
PLAIN := ./stream/streamtest ./runtime/operator $$(go list ./... | grep -v -E '^$(MODULE)/((runtime|connector|checkpoint|$(APART))(/|$$)|stream$$|stream/internal/)'; go list ./... | grep -E '^$(MODULE)/($(SINGLE))(/|$$)')

# What is tested against models and references, most of which are in runtime/operator.
MODELS := $$(grep -rlE --include='*_test.go' 'pgregory.net/rapid|state/statetest' runtime state checkpoint serde am connector stream | xargs -n1 dirname | sort -u | sed 's,^,./,')

# `make sim` and `make test-model` give other seeds each time, and print the command that repeats them.
.PHONY: test test-unit test-race test-model fuzz sim sim-mutants meta test-integration test-matrix test-faults test-kills test-endtxn soak deps deps-faults
test: deps test-unit build ## everything: unit tests, the binaries on real daemons, a short fault run on each state backend
	@$(with_cluster); \
	$(OWN_CLUSTERS) & own=$$!; code=0; \
	$(INTEGRATION) -skip TestSuites/fs/hdfs 2>&1 | $(CLOSING) || code=$$?; \
	wait $$own || code=$$?; [ $$code -eq 0 ]; \
	for b in hashmap pebble; do $(FAULTS) $(SHORT) -backend $$b -seed "$${SEED:-0}"; done
	@echo "make test: all passed"

# What has clusters of its own starts them while other tests wait. Of HDFS no test may be skipped.
define OWN_CLUSTERS
( code=0; go test -count=1 -timeout 15m ./test/rig || code=$$?; eval "$$($(RIG) env)"; log="$$TEST_CLUSTER/log/test-hdfs.log"; \
  go test -count=1 -timeout 20m -v ./fs/hdfs > "$$log" 2>&1 || { code=$$?; grep -v -E '^=== |--- PASS' "$$log"; }; \
  ! grep -e '--- SKIP' "$$log" && tail -n 1 "$$log" && exit $$code )
endef

# What passed is not worth a line each, beyond the tests themselves.
CLOSING := grep --line-buffered -v -E '^=== |"message":"ipc connected"'

test-unit: ## every test that needs no daemons, vetted, with the race detector where goroutines share a process
	@$(in_memory); \
	$(RACEABLE) -vet=all -timeout 20m $$(go list $(RACED) | grep -v -E '^$(MODULE)/($(SINGLE))(/|$$)'); \
	RAPID_CHECKS=5 $(RACEABLE) -vet=off -timeout 20m ./state/... & state=$$!; code=0; \
	go test -vet=all -timeout 15m $(PLAIN) || code=$$?; \
	wait $$state || code=$$?; exit $$code
	go vet $$(go list -f '{{if not (or .TestGoFiles .XTestGoFiles)}}{{.ImportPath}}{{end}}' ./...) $(addprefix ./,$(subst |, ,$(APART)))

test-race: ## every test that needs no daemons with the race detector (needs gcc; half an hour)
	@$(in_memory); RAPID_CHECKS=20 $(RACEABLE) -timeout 60m $$(go list ./... | grep -v -E '^$(MODULE)/($(APART))(/|$$)')

test-model: ## operators, windows, joins, state and timers against plain models, N random runs of each: make test-model [N=1000] [SEED=7] [RUN=Join]
	@n="$${N:-1000}"; seed="$${SEED:-$$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}"; run="$${RUN:-Model|Reference}"; \
	echo "$$n runs of each model with seed $$seed; the same again: make test-model N=$$n SEED=$$seed RUN='$$run'"; \
	go test -count=1 -timeout 6h -run "$$run" $(MODELS) -rapid.checks="$$n" -rapid.seed="$$seed"

fuzz: ## each fuzz test of decoders (snapshots, metadata, records, wire formats) for a while: make fuzz [FOR=30s] [RUN=checkpoint/metadata]
	@scripts/fuzz.sh "$${FOR:-30s}" '$(or $(RUN),.)'

sim: ## a whole job with its checkpoints, failures and restarts in one goroutine, N seeds from SEED on: make sim [N=10000] [SEED=7 [KEEP=2,5] [RECORDS=20] [TRACE=1]]
	@n="$${N:-$(if $(SEED),1,10000)}"; seed="$${SEED:-$$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}"; \
	echo "$$n seeds from $$seed on"; \
	go test -count=1 -timeout 24h -v -run 'TestSim$$' ./test/sim -args -n "$$n" -seed "$$seed" -keep "$(KEEP)" -records "$${RECORDS:-0}" -trace=$(if $(TRACE),true,false)

sim-mutants: ## plant hand-made faults in the product, one after another, and let the simulation look for them: make sim-mutants [ARGS="-run barrier"]
	@go run ./test/sim/mutants $(ARGS)

meta: ## the same job under odd configurations against a plain reference, N random ones beside the fixed: make meta [N=100] [SEED=7] [CASE='parallelism.default=2;pad=50']
	@seed="$${SEED:-$$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}"; echo "seed $$seed"; \
	go test -count=1 -timeout 6h -v -run TestAllConfigurationsAgree ./test/meta -args -n "$${N:-40}" -seed "$$seed" -case '$(CASE)'

# A cluster of each kind is made, used and removed, one after another. What cannot run on one of them is in the table, with its reason.
test-matrix: deps build ## the integration suite and a short fault run on each kind of cluster, and a table of them: make test-matrix [ON=simple,kerberos,integrity,privacy,rm-ha,nn-ha,docker] [SUITES=integration] [RUN=TestMainPath] [JSON=file]
	@export THALWEG_CLUSTER_DIR="$$TEST_CLUSTER" THALWEG_JARS_DIR="$${THALWEG_JARS_DIR:-$(CURDIR)/.cluster/jars}" THALWEG_PORT_BASE="$${THALWEG_PORT_BASE:-26000}"; \
	go run ./test/matrix -on '$(ON)' -suites '$(SUITES)' -run '$(RUN)' -seed "$${SEED:-0}" -json '$(JSON)' -logs '$(LOGS)'

test-integration: deps build ## the binaries on real Hadoop and Kafka daemons: make test-integration [RUN=TestMainPath]
	@$(with_cluster); $(INTEGRATION) -run '$(RUN)' 2>&1 | $(CLOSING)

LONG := go test -tags failpoints -count=1 -timeout 0 -v -run TestEveryStep ./test/faults -args -bin ../../bin/faults -records 0

test-faults: deps-faults build-faults ## each fault of test/faults once (failpoints, signals, daemons, HDFS, network), then pairs: make test-faults [SEED=7] [BACKEND=pebble] [ONLY='kill at kafka'] [PAIRS=8] [HISTORY=file]
	@export THALWEG_RIG_HOSTS=2; $(with_cluster); $(LONG) -long -1 -pairs "$${PAIRS:-$(if $(ONLY),0,8)}" -only '$(ONLY)' -limit 60m -backend "$${BACKEND:-pebble}" -seed "$${SEED:-0}" -history "$(abspath $(HISTORY))"

soak: deps-faults build-faults ## a fault each 20 s for as long as asked: make soak [FOR=2h] [EACH=20s] [SEED=7] [HISTORY=file]
	@export THALWEG_RIG_HOSTS=2; $(with_cluster); \
	$(LONG) -long -1 -soak "$${FOR:-2h}" -every "$${EACH:-20s}" -limit 48h -backend "$${BACKEND:-pebble}" -seed "$${SEED:-0}" -history "$(abspath $(HISTORY))"

test-endtxn: deps build-faults ## EndTxn requests that reach the broker late, N times with the transaction protocol of KIP-890 and N times without: make test-endtxn [N=500] [SEED=7]
	@$(with_cluster); for v in 2 1; do \
	$(LONG) -endtxn "$${N:-500}" -rate 1200 -interval 500ms -transactions $$v -ending '' -limit 24h -backend hashmap -seed "$${SEED:-0}"; done

test-kills: deps build ## kill -9 of every process while over 200,000 records flow through windows; prints medians: make test-kills [SEED=7] [BACKEND=pebble]
	@$(with_cluster); $(FAULTS) -records 202000 -each 5 -broker 2 -rm 1 -backend "$${BACKEND:-hashmap}" -seed "$${SEED:-0}"

deps-faults: # and what cuts the network
	@scripts/install-deps.sh iptables

deps: ## install what the real daemons need, as far as it is missing (JDK 17, Maven, MIT Kerberos)
	@scripts/install-deps.sh

##@ checks

# The toolchain's own: an older gofmt on the PATH does not know generic methods.
GOFMT = "$$(go env GOROOT)/bin/gofmt"

.PHONY: lint fmt
lint: ## gofmt, go vet, the rules of internal/lint, golangci-lint in the version of internal/tools/go.mod
	@files="$$(git ls-files '*.go' | xargs $(GOFMT) -l)"; if [ -n "$$files" ]; then echo "not formatted (make fmt):" $$files >&2; exit 1; fi
	go vet ./...
	go test ./internal/lint
	go tool -modfile=internal/tools/go.mod golangci-lint run ./...

fmt: ## gofmt all files
	@git ls-files '*.go' | xargs $(GOFMT) -w

##@ a real cluster on this machine (Hadoop and Kafka as plain Java processes; needs JDK 17 and Maven)

.PHONY: cluster-up cluster-down cluster-env cluster-status cluster-clean
cluster-up: ## start NameNode, DataNode, ResourceManager, two NodeManagers and a Kafka broker; wait until they serve: make cluster-up [ARGS="--security kerberos --rm-ha"] (docs/test-clusters.md)
	@go run ./test/rig/cmd/rig up $(ARGS)

cluster-down: ## stop them and every container; the data stays
	@go run ./test/rig/cmd/rig down

cluster-env: ## print export lines (HADOOP_CONF_DIR, THALWEG_KAFKA, PATH): eval "$(make -s cluster-env)"
	@go run ./test/rig/cmd/rig env

cluster-status: ## one line per daemon
	@go run ./test/rig/cmd/rig status

cluster-clean: ## stop the cluster and remove all its files but the jars
	@go run ./test/rig/cmd/rig down -purge

.PHONY: docker-hadoop test-docker
docker-hadoop: ## the cluster as containers (docs/test-clusters.md): make docker-hadoop, SECURITY=kerberos NN_HA=true make docker-hadoop; end it: docker/hadoop/cluster.sh down
	@docker/hadoop/cluster.sh build $(ARGS) && docker/hadoop/cluster.sh up

test-docker: build ## the stock clients' round trip through that cluster, then the integration suite against it: make test-docker [RUN=TestMainPath]
	@docker/hadoop/cluster.sh test && docker/hadoop/cluster.sh integration -run '$(RUN)'

##@ benchmarks beside Apache Flink (needs JDK 17, Maven, pip; best on a machine that does nothing else)

.PHONY: bench bench-nexmark bench-start bench-latency bench-state bench-memory bench-checkpoint bench-rescale
bench: build ## throughput and memory of each case, both engines in turn: make bench [ARGS="-pairs 5 -cases chain -save"]
	@go run ./bench/cmd/bench $(ARGS)

bench-nexmark: ## Nexmark, each query beside Flink: make bench-nexmark [ARGS="-cases q5/*/replay/p1/*/100k -resume q5.jsonl"]
	@go run ./bench/cmd/bench -suite nexmark $(ARGS)

bench-state: build ## 5 GB of keyed state in a TaskManager of 1 GiB, with a kill -9 and a restore, each engine in turn: make bench-state [ARGS="-only thalweg -state 1gb"]
	@go run ./bench/cmd/state $(ARGS)

bench-checkpoint: build ## checkpoints of 100 KB to 2 GB of state to HDFS, restores, and what checkpoints cost, each engine in turn: make bench-checkpoint [ARGS="-cases 100kb,cost"]
	@go run ./bench/cmd/checkpoint $(ARGS)

bench-rescale: build ## how long the output stops while the parallelism changes from 2 to 4 and back, each engine in turn: make bench-rescale [ARGS="-cases 1mb"]
	@go run ./bench/cmd/rescale $(ARGS)

bench-memory: build ## the smallest containers that keep 95 % of the throughput, each engine's: make bench-memory [ARGS="-cases chain -only thalweg"]
	@go run ./bench/cmd/bench -suite memory $(ARGS)

bench-start: build ## command to first record on YARN, both in turn, with the phases of ours: make bench-start [ARGS="-runs 3"]
	@go run ./bench/cmd/start $(ARGS)

bench-latency: build ## window's end to a reader of committed records at a third of the maximum load, both in turn: make bench-latency [ARGS="-loads 0.1,0.33,0.7"]
	@go run ./bench/cmd/latency $(ARGS)
