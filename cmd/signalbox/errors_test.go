package main

import (
	"cmp"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"signalbox/internal/fault"
	"signalbox/internal/task/amp"
)

var update = flag.Bool("update", false, "write docs/errors.md from the catalogues")

// codesInSource reads the constants of type Code from the source, so that one
// that nobody listed anywhere is found too.
func codesInSource(t *testing.T, folder string) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", "internal", folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	codes := map[string]string{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok {
				return true
			}
			if typ, ok := spec.Type.(*ast.Ident); !ok || typ.Name != "Code" {
				return true
			}
			for i, name := range spec.Names {
				value, err := strconv.Unquote(spec.Values[i].(*ast.BasicLit).Value)
				if err != nil {
					t.Fatalf("%s: %v", name.Name, err)
				}
				if other, ok := codes[value]; ok {
					t.Errorf("%s and %s are both %q", other, name.Name, value)
				}
				codes[value] = name.Name
			}
			return true
		})
	}
	if len(codes) < 20 {
		t.Fatalf("found only %d codes in the source; is this test still reading the right thing?", len(codes))
	}
	return codes
}

func TestEveryCodeHasExactlyOneRowInTheCatalogue(t *testing.T) {
	ours, tasks := map[string]int{}, map[string]int{}
	for _, m := range fault.Catalogue {
		ours[string(m.Code)]++
	}
	for _, m := range amp.Catalogue {
		tasks[string(m.Code)]++
	}
	for folder, rows := range map[string]map[string]int{"fault": ours, "task/amp": tasks} {
		codes := codesInSource(t, folder)
		for code, name := range codes {
			if rows[code] != 1 {
				t.Errorf("%s (%q) has %d rows in the catalogue, and should have one", name, code, rows[code])
			}
		}
		for code := range rows {
			if _, ok := codes[code]; !ok {
				t.Errorf("the catalogue has a row for %q, which is no constant", code)
			}
		}
	}
}

const intro = `# Errors

<!-- Generated from internal/fault/codes.go and internal/task/amp/catalogue.go. To change it,
     change those files and run go test ./cmd/signalbox -run ErrorPage -update -->

Every error of Signalbox has a code that does not change, so that a program can
switch on it, and a message that says what was wrong and what to do. Where a protocol
has no form of its own for errors, the answer is JSON:

` + "```json" + `
{"error": "invalid_payload", "message": "The field \"sumary\" is not known here. Did you mean \"summary\"?", "field": "sumary"}
` + "```" + `

` + "`field` and `details`" + ` are there when they help. The message is for people and may be
reworded; do not match on it. After an answer with a ` + "`Retry-After`" + ` header nothing was
changed, and the call can be sent again after that many seconds.

| code | status | meaning |
|---|---|---|
`

const taskIntro = `
## Tasks

Calls of AMP/1.0 answer in the protocol's own form: a list of problems, each with its code, a JSON pointer
to the place, and what would have been right. A document goes through five layers and is refused by
the first that finds something. Warnings are noted, and the document is taken.

| code | layer | meaning |
|---|---|---|
`

func TestTheErrorPageIsWhatTheCatalogueSays(t *testing.T) {
	rows := slices.Clone(fault.Catalogue)
	slices.SortStableFunc(rows, func(a, b fault.Meaning) int { return a.Status - b.Status })
	var want strings.Builder
	want.WriteString(intro)
	for _, m := range rows {
		fmt.Fprintf(&want, "| `%s` | %d | %s |\n", m.Code, m.Status, m.Text)
	}
	want.WriteString(taskIntro)
	for _, m := range amp.Catalogue {
		fmt.Fprintf(&want, "| `%s` | %s | %s |\n", m.Code, cmp.Or(string(m.Layer), "warning"), m.Text)
	}
	page := filepath.Join("..", "..", "docs", "errors.md")
	if *update {
		if err := os.MkdirAll(filepath.Dir(page), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(page, []byte(want.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatalf("%v\nMake it with: go test ./cmd/signalbox -run ErrorPage -update", err)
	}
	if diff := gocmp.Diff(want.String(), string(got)); diff != "" {
		t.Errorf("docs/errors.md is behind the catalogue; "+
			"run go test ./cmd/signalbox -run ErrorPage -update (-want +got):\n%s", diff)
	}
}
