# `make help` lists what there is. Every target does its own set-up.
.DEFAULT_GOAL := help
.PHONY: help up build test race bench lint

GO_BUILD = go build -trimpath -ldflags "-s -w"

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-7s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

up: build ## Build Signalbox and start it, with its data in ./signalbox-data
	@exec bin/signalbox up $(ARGS)

build: ## Build bin/signalbox
	@$(GO_BUILD) -o bin/signalbox ./cmd/signalbox

test: ## Run every test, on SQLite and on a PostgreSQL that is installed and started for it
	@scripts/test-tools
	@scripts/with-postgres go test -timeout 9m ./...

race: ## Run every test with the race detector; takes a C compiler
	@scripts/test-tools
	@scripts/with-postgres go test -race -timeout 20m ./...

bench: ## Measure what the budgets name and print a table with ratios
	@scripts/with-postgres scripts/bench

lint: ## Run golangci-lint; its first run builds it, which takes minutes
	@go tool -modfile=tools/go.mod golangci-lint run ./...
