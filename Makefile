# `make help` lists what there is. Every target does its own set-up.
.DEFAULT_GOAL := help
.PHONY: help up build test race bench soak lint man screenshots image release licences

# BIN is where the program goes. Tests that start the program build it with make too.
BIN = bin/signalbox
# Tests are compiled with the program's flags, so that both share what the compiler made.
FLAGS = -trimpath -ldflags=-s
up build test bench man screenshots image release licences: export CGO_ENABLED = 0
race: export CGO_ENABLED = 1

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

up: build ## Build Signalbox and start it, with its data in ./signalbox-data
	@exec $(BIN) up $(ARGS)

build: ## Build bin/signalbox
	@go build $(FLAGS) -o $(BIN) ./cmd/signalbox

# The two packages that take longest begin first, and a third runs beside them: tests wait more than they compute.
test: ## Run every test, on SQLite and on a PostgreSQL that is installed and started for it
	@scripts/test-tools
	@scripts/in-memory scripts/with-postgres go run $(FLAGS) ./scripts/progress $(FLAGS) -timeout 80m -p 3 -parallel 3 \
		./internal/server ./cmd/signalbox ./...

race: ## Run every test with the race detector; takes a C compiler
	@scripts/test-tools
	@scripts/in-memory scripts/with-postgres go run ./scripts/progress -race -timeout 80m ./...

bench: ## Measure what the budgets name and print a table with ratios
	@scripts/with-postgres scripts/bench

soak: ## Try what takes minutes: a thousand sequences of keys in the inbox, fifty backups under load
	@scripts/test-tools
	@scripts/in-memory scripts/with-postgres go test $(FLAGS) ./internal/backup -run UnderLoad -count 1 -v -args -backups 50
	@go test $(FLAGS) ./internal/server -run NoKeysDecide -count 1 -v -args -sequences 1000

lint: ## Run golangci-lint; its first run builds it, which takes minutes
	@go tool -modfile=tools/go.mod golangci-lint run ./...

image: ## Write an OCI image for amd64 and arm64 into dist/, without a daemon
	@go run $(FLAGS) ./scripts/release image dist

release: ## Write programs, the image, lists of their parts, licences and checksums into dist/
	@rm -rf dist
	@go run $(FLAGS) ./scripts/release all dist

licences: ## List the licences of all that is in the program; fails on one that is not allowed
	@go run $(FLAGS) ./scripts/release licences

man: ## Write the man pages into man/
	@go run $(FLAGS) ./internal/cli/man man

screenshots: ## Take the README's pictures of the dashboard anew, with Chromium
	@scripts/test-tools
	@go test $(FLAGS) ./cmd/signalbox -run ThePicturesOfTheReadme -count 1 -args -pictures $(CURDIR)/docs
