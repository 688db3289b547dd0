# `make help` lists what there is. Every target does its own set-up.
.DEFAULT_GOAL := help
.PHONY: help up build test race bench lint screenshots

# BIN is where the program goes. Tests that start it build it here too, elsewhere.
BIN = bin/signalbox

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

up: build ## Build Signalbox and start it, with its data in ./signalbox-data
	@exec $(BIN) up $(ARGS)

build: ## Build bin/signalbox
	@CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o $(BIN) ./cmd/signalbox

test: ## Run every test, on SQLite and on a PostgreSQL that is installed and started for it
	@scripts/test-tools
	@echo "running every test: about six minutes, of which the first two or three print little ..." >&2
	@scripts/with-postgres go test -timeout 9m ./...

race: ## Run every test with the race detector; takes a C compiler
	@scripts/test-tools
	@scripts/with-postgres go test -race -timeout 20m ./...

bench: ## Measure what the budgets name and print a table with ratios
	@scripts/with-postgres scripts/bench

lint: ## Run golangci-lint; its first run builds it, which takes minutes
	@go tool -modfile=tools/go.mod golangci-lint run ./...

screenshots: ## Take the README's pictures of the dashboard anew, with Chromium
	@scripts/test-tools
	@go test ./cmd/signalbox -run ThePicturesOfTheReadme -count 1 -args -pictures $(CURDIR)/docs
