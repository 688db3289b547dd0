# `make help` lists what there is. Every target does its own set-up.
.DEFAULT_GOAL := help
.PHONY: help up build test race bench lint screenshots

# What waits for people is built without inlining, which makes the program 2 MB smaller.
US = signalbox/internal
COLD = $(US)/cli/... $(US)/conform $(US)/web $(US)/notify/... $(US)/mcp \
  github.com/go-telegram/... github.com/modelcontextprotocol/... github.com/google/jsonschema-go/... github.com/wneessen/... \
  github.com/coreos/... github.com/go-jose/... golang.org/x/oauth2/... github.com/spf13/... github.com/antlr4-go/... \
  cel.dev/cel-go/parser/... cel.dev/cel-go/checker/... cel.dev/cel-go/cel cel.dev/cel-go/common/... google.golang.org/... go.yaml.in/... \
  github.com/prometheus/... crypto/tls crypto/x509 html/template text/template/... golang.org/x/text/... \
  encoding/xml encoding/gob encoding/asn1 mime/... math/big
GO_BUILD = CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" $(foreach p,$(COLD),-gcflags=$(p)=-l)

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

up: build ## Build Signalbox and start it, with its data in ./signalbox-data
	@exec bin/signalbox up $(ARGS)

build: ## Build bin/signalbox
	@$(GO_BUILD) -o bin/signalbox ./cmd/signalbox

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
