# The programs, their checks and a demonstration. `make` alone lists the targets.

.DEFAULT_GOAL := help

# Go stamps the commit into the programs, where git lets it: not in an export
# without history, nor in a checkout that belongs to another user.
BUILDVCS := $(shell git rev-parse --verify -q HEAD >/dev/null 2>&1 && echo true || echo false)

# What `make test` tests, and how many packages at a time: each starts servers
# and processes of its own.
PKG ?= ./...
PACKAGES_AT_ONCE ?= 2

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z\/-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build bin/unwind and bin/unwind-worker
	go build -buildvcs=$(BUILDVCS) -o bin/unwind ./starter
	go build -buildvcs=$(BUILDVCS) -o bin/unwind-worker ./worker

.PHONY: test
test: needs build ## Run all tests, with the race detector, and see that nothing of them is left; PKG=./internal/lock for some
	go run ./test/left go test -race -timeout 40m -p $(PACKAGES_AT_ONCE) $(PKG)

.PHONY: races
races: needs ## Let what must exclude each other meet 1,000 times in each race, after 200 random sequences; takes an hour or two
	go test -race -timeout 3h -run RandomSequences ./internal/store -rapid.checks=200
	UNWIND_TEST_INTERLEAVINGS=1000 go test -race -v -timeout 3h -run 'Against|AreSerialized|Processes' ./internal/store ./activities ./test

# Its server: TEMPORAL_CLI if set, else bin/temporal. After needs, which is quick.
ifndef TEMPORAL_CLI
test: bin/temporal
export TEMPORAL_CLI = $(CURDIR)/bin/temporal
endif

.PHONY: histories
histories: bin/temporal ## Record the histories that workflows/ is replayed against, after a change that is versioned
	go test -timeout 10m -run HistoriesReplay ./test -record

.PHONY: needs
needs:
	@.ci/needs

.PHONY: lint
lint: bin/golangci-lint bin/workflowcheck ## Check format, vet, golangci-lint, Temporal's workflowcheck, and that it builds for macOS
	@unformatted=$$(gofmt -l .) && if [ -n "$$unformatted" ]; then \
		echo "Not formatted, run make fmt:"; echo "$$unformatted"; exit 1; fi
	go vet ./...
	bin/golangci-lint run ./...
	bin/workflowcheck ./workflows/...
	GOOS=darwin go build ./...

.PHONY: fmt
fmt: ## Format all Go files
	gofmt -w .

.PHONY: bench
bench: build bin/temporal ## Measure against plain commands that do the same work, and print a table
	go run ./test/bench

.PHONY: demo
demo: build bin/temporal ## Finalize three real sessions on private servers; KEEP=1 stays up for the web UI
	KEEP=$(KEEP) go run ./examples/demo

.PHONY: dev
dev: build bin/temporal ## Run Temporal, a worker and a SQLite database for real use
	PATH="$(CURDIR)/bin:$$PATH" bin/unwind dev

.PHONY: clean
clean: ## Remove what was built, except the tools, which take minutes
	rm -rf bin/unwind bin/unwind-worker dist

bin/temporal: tools.mod ## Provide Temporal's CLI: from the PATH if new enough, else built once
	@.ci/temporal

bin/golangci-lint: lint.mod
	@.ci/build-tool $@ lint.mod github.com/golangci/golangci-lint/v2/cmd/golangci-lint

bin/workflowcheck: lint.mod
	@.ci/build-tool $@ lint.mod go.temporal.io/sdk/contrib/tools/workflowcheck
