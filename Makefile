# Thalweg. `make help` lists the targets. The first builds need the module cache; everything else is installed by the targets.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
export GOTOOLCHAIN = go1.27.3

VERSION ?= 0.1.0-dev+$(shell git rev-parse --short HEAD 2>/dev/null || echo unknown)
GOBUILD := CGO_ENABLED=0 GOOS=linux GOARCH=amd64 go build -trimpath -ldflags "-s -w -X github.com/thalweg/thalweg/internal/version.Version=$(VERSION)"
EXAMPLES := $(patsubst examples/%/main.go,%,$(wildcard examples/*/main.go))

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
	@for e in $(EXAMPLES); do echo "build bin/examples/$$e"; $(GOBUILD) -o bin/examples/$$e ./examples/$$e; done

##@ a real cluster on this machine (Hadoop and Kafka as plain Java processes; needs JDK 17 and Maven)

.PHONY: cluster-up cluster-down cluster-env cluster-status cluster-clean
cluster-up: ## start NameNode, DataNode, ResourceManager, two NodeManagers and a Kafka broker; wait until they serve
	@go run ./test/rig/cmd/rig up

cluster-down: ## stop them and every container; the data stays
	@go run ./test/rig/cmd/rig down

cluster-env: ## print export lines (HADOOP_CONF_DIR, THALWEG_KAFKA, PATH): eval "$(make -s cluster-env)"
	@go run ./test/rig/cmd/rig env

cluster-status: ## one line per daemon
	@go run ./test/rig/cmd/rig status

cluster-clean: ## stop the cluster and remove its data
	@go run ./test/rig/cmd/rig down -purge

##@ benchmarks beside Apache Flink (needs JDK 17, Maven, pip; best on a machine that does nothing else)

.PHONY: bench bench-start
bench: build ## throughput and memory of each case, both engines in turn: make bench [ARGS="-pairs 5 -cases chain -save"]
	@go run ./bench/cmd/bench $(ARGS)

bench-start: build ## command to first record on YARN, both in turn, with the phases of ours: make bench-start [ARGS="-runs 3"]
	@go run ./bench/cmd/start $(ARGS)
