# One command per job; `make` alone lists them. Only `generate`, `tidy` and `fmt` edit sources.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:

##@ Variables

KUBERNETES ?= 1.26 1.31:on 1.37 ## clusters of e2e: a version as it comes, with the gate of in-place resize :on or :off, with another runtime as in 1.26+crun or 1.32+containerd2:off, mixed or mixed:NAME
PROVIDER ?= bed ## who runs the clusters of e2e: bed, without Docker, or kind
GATE ?= ## the gate of in-place resize in kind-up: on or off; empty: as the last version of KUBERNETES has it
MATRIX ?= ## clusters of e2e-matrix, as in KUBERNETES; empty: all
GATES ?= ## feature gates of cluster-up, e.g. InPlacePodVerticalScaling=true
NODE ?= ## kind of the nodes of e2e: vm is a virtual machine with cgroup v2, vm-systemd one with the systemd cgroup driver too
NODES ?= ## nodes of cluster-up, with their kubelet's version and runtime if it is another one, e.g. n1,n2=1.33,n3:runtime=crun
CLUSTER ?= dev ## name of the cluster of cluster-up, cluster-down, kind-up and kind-down; in cluster-down, CLUSTER= is every one
ARGS ?= ## more arguments for go test in unit, unit-latest, figures and e2e, e.g. ARGS='-run TestSet'

BIN := bin
CONTROLLER_GEN := $(BIN)/controller-gen
GOLANGCI_LINT := $(BIN)/golangci-lint
API := resize/v1alpha1
CRDS := manifests/base/crd

##@ Targets

.PHONY: help
help: ## list targets and variables (default)
	@awk '/^##@ / { print (NR > 9 ? "\n" : "") substr($$0, 5); next } \
		!/ ## / { next } \
		{ text = $$0; sub(/.* ## /, "", text) } \
		/^[A-Z]+ \?= / { value = $$0; sub(/^[^=]*= /, "", value); sub(/ *## .*/, "", value); \
			printf "  %-14s%s%s\n", $$1, text, value == "" ? "" : " [" value "]" } \
		/^[a-z0-9-]+:/ { sub(/:.*/, "", $$1); printf "  %-14s%s\n", $$1, text }' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## resize a pod on the newest Kubernetes (in place) and on 1.26 (CRI), with the kernel's figures
	@echo 'compiling the demo'
	@cd test && go run ./demo

.PHONY: test
test: unit figures e2e ## all tests

.PHONY: unit
unit: cgo ## tests that need no cluster, with the race detector
	go test -race -shuffle=on -vet=off $(ARGS) ./...
	cd test && go test -shuffle=on -vet=off $(ARGS) ./...

.PHONY: unit-latest
unit-latest: ## build and test against the newest Kubernetes libraries (go.latest.mod)
	go build -modfile=go.latest.mod ./...
	go test -modfile=go.latest.mod -vet=off $(ARGS) ./...

.PHONY: figures
figures: ## compare the CRI path's figures with those of the kubelet's own functions, 1.37 and 1.26, for random pods
	@echo 'compiling parts of both kubelets; the first time this takes minutes'
	$(call go-test-e2e,.,./fallback/figures)

.PHONY: e2e
e2e: export PODRESIZE_KUBERNETES := $(strip $(KUBERNETES))
e2e: export PODRESIZE_PROVIDER := $(strip $(PROVIDER))
e2e: export PODRESIZE_NODE := $(strip $(NODE))
e2e: ## tests on real clusters of every version in KUBERNETES; a skipped test fails
	$(if $(filter kind,$(PROVIDER)),,$(call go-test-e2e,.,./fallback/cgroup))
	$(call go-test-e2e,test,$(if $(filter kind,$(PROVIDER)),,./cluster/...) ./e2e/...)

.PHONY: e2e-matrix
e2e-matrix: ## the suites of e2e on every version, gate on and off, and mixed; writes the verdicts into docs/matrix.md
	cd test && go run ./matrix $(MATRIX)

# Tests packages $(2) in directory $(1), one package at a time: clusters would get in each other's way. The build
# beforehand uses all processors. Fails too when a test was skipped, which is named, or when none ran to its end.
define go-test-e2e
	@mkdir -p $(BIN)
	cd $(1) && go build -tags e2e ./...
	cd $(1) && go test -tags e2e -p 1 $(if $(strip $(NODE)),-parallel 1) -count=1 -v -vet=off -timeout $(if $(strip $(NODE)),3h,40m) $(ARGS) $(2) 2>&1 | tee $(CURDIR)/$(BIN)/e2e.log
	@awk -v args="$(ARGS)" '/--- PASS: / { passed++ } \
		sub(/.*--- SKIP: /, "") { print "FAIL: skipped " $$0; skipped++ } \
		END { if (!passed && !args) { print "FAIL: no test ran"; exit 1 }; exit skipped > 0 }' $(BIN)/e2e.log
endef

.PHONY: bench
bench: ## measure on real clusters, beside kubectl, and write the figures into docs/benchmarks.md
	cd test && go run ./bench

.PHONY: lint
lint: $(GOLANGCI_LINT) ## golangci-lint over all modules
	$(GOLANGCI_LINT) run
	cd test && ../$(GOLANGCI_LINT) run
	cd test/kubelet && ../../$(GOLANGCI_LINT) run

.PHONY: fmt
fmt: $(GOLANGCI_LINT) ## format the sources
	$(GOLANGCI_LINT) fmt
	cd test && ../$(GOLANGCI_LINT) fmt
	cd test/kubelet && ../../$(GOLANGCI_LINT) fmt

# Deep copies into directory $(1), CRDs into directory $(2).
generate-into = $(CONTROLLER_GEN) paths=./$(API) object output:object:dir=$(1) crd output:crd:dir=$(2)

KIND_CONFIGS := kind-configs
# The configurations of kind into directory $(1).
generate-kind = cd test && go run ./cmd/kind configs --output=$(1)

.PHONY: generate
generate: $(CONTROLLER_GEN) ## write the deep copies and the CRDs of the API types, docs/feature-gates.md, the configurations of kind
	$(call generate-into,$(API),$(CRDS))
	$(call generate-kind,../$(KIND_CONFIGS))
	go test -vet=off -run '^TestDocs$$' ./internal/gates -update

.PHONY: verify
verify: lint verify-generate verify-tidy unit-latest ## everything that needs no cluster but the unit tests; edits nothing

.PHONY: verify-generate
verify-generate: $(CONTROLLER_GEN)
	@tmp=$$(mktemp -d); trap 'rm -rf "$$tmp"' EXIT; \
	$(call generate-into,$$tmp/go,$$tmp/crd); \
	($(call generate-kind,$$tmp/kind)); \
	diff -u $(API)/zz_generated.deepcopy.go "$$tmp"/go/zz_generated.deepcopy.go && \
	diff -ur -x kustomization.yaml $(CRDS) "$$tmp"/crd && \
	diff -ur $(KIND_CONFIGS) "$$tmp"/kind || \
	{ echo 'generated files are stale: run make generate' >&2; exit 1; }

.PHONY: tidy
tidy: ## bring the go.mod and go.sum files of all modules up to date
	$(call each-mod,)

.PHONY: verify-tidy
verify-tidy:
	$(call each-mod,-diff)

# Embedders build the main module with Go 1.25: a dependency that wants a newer one is an error, not a newer go line.
define each-mod
go mod tidy $(1) -go=1.25.0
	go mod tidy $(1) -modfile=go.latest.mod
	cd test && go mod tidy $(1)
	cd test/kubelet && go mod tidy $(1)
	cd test/kubelet && go mod tidy $(1) -modfile=go.old.mod
	cd tools && go mod tidy $(1)
endef

.PHONY: images
images: ## the agent's image and those of tests as docker archives in bin/images, to load and push
	cd test && go run ./cmd/cluster images --output ../$(BIN)/images

.PHONY: cluster-up
cluster-up: ## start a cluster and print its KUBECONFIG; safe to repeat
	cd test && go run ./cmd/cluster up --name=$(CLUSTER) --kubernetes=$(firstword $(subst :, ,$(lastword $(KUBERNETES)))) \
		--gates='$(GATES)' --nodes='$(NODES)'

.PHONY: cluster-down
cluster-down: ## remove the cluster and all that it left; safe to repeat
	cd test && go run ./cmd/cluster down $(if $(CLUSTER),--name=$(CLUSTER),--all)

.PHONY: kind-up
kind-up: ## start a cluster by kind, which needs Docker, and print its KUBECONFIG, e.g. KUBERNETES=1.29 GATE=on
	cd test && go run ./cmd/kind up --name=$(CLUSTER) $(lastword $(KUBERNETES))$(GATE:%=:%)

.PHONY: kind-down
kind-down: ## remove the cluster of kind-up; safe to repeat
	cd test && go run ./cmd/kind down --name=$(CLUSTER)

.PHONY: clean
clean: ## remove what the other targets built
	rm -rf $(BIN)

$(CONTROLLER_GEN) $(GOLANGCI_LINT) &: tools/go.mod tools/go.sum
	@echo 'building controller-gen and golangci-lint; the first time this takes minutes'
	@go build -C tools -v -o ../$(BIN)/ tool 2>&1 | \
		awk '/[ #:]/ { print; next } ++n % 100 == 0 { print "  " n " packages compiled" }'
	@touch $(CONTROLLER_GEN) $(GOLANGCI_LINT)

.PHONY: cgo
cgo:
	@command -v $$(go env CC) > /dev/null || \
		{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq gcc libc6-dev > /dev/null; } || \
		{ echo "the race detector needs a C compiler: apt-get install gcc libc6-dev" >&2; exit 1; }
