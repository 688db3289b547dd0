package archtest_test

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

const twoSentences = "// Package x is an example. It has two sentences.\n"

// source is a Go file that imports the packages; ours are given without the module.
func source(imports ...string) string {
	var b strings.Builder
	b.WriteString(twoSentences + "package x\n")
	for _, i := range imports {
		if under(i, "internal") || under(i, "client") {
			i = module + "/" + i
		}
		b.WriteString("import _ \"" + i + "\"\n")
	}
	return b.String()
}

// handler is a Go file with a handler that does something.
func handler(does string) string {
	return twoSentences + "package x\nfunc (g *Gates) handle(w http.ResponseWriter, r *http.Request) error { " + does +
		"; return nil }\n"
}

// Each example is a file and the sentences that it should be answered with.
func TestTheRulesFindWhatBreaksThem(t *testing.T) {
	for _, c := range []struct {
		name, path, source string
		want               []string
	}{
		{"down the staircase", "internal/gate/a.go", source("internal/fault", "internal/ledger", "fmt"), nil},
		{
			"up the staircase", "internal/ledger/a.go", source("internal/roster"),
			[]string{"internal/ledger/a.go imports internal/roster: roster does not stand above ledger on the staircase"},
		},
		{
			"up the staircase in a test", "internal/store/a_test.go", source("internal/ledger"),
			[]string{"internal/store/a_test.go imports internal/ledger: ledger does not stand above store on the staircase"},
		},
		{
			"the core imports a protocol", "internal/gate/a.go", source("internal/signal"),
			[]string{"internal/gate/a.go imports internal/signal: signal does not stand above gate on the staircase"},
		},
		{
			"a protocol imports another that stands above it", "internal/task/a.go", source("internal/signal"),
			[]string{"internal/task/a.go imports internal/signal: a protocol package never imports " +
				"another; what two of them share belongs to the core"},
		},
		{
			"a protocol imports a sub-package of another", "internal/task/a.go", source("internal/run/amp"),
			[]string{"internal/task/a.go imports internal/run/amp: a protocol package never imports " +
				"another; what two of them share belongs to the core"},
		},
		{
			"a protocol's sub-package imports its own", "internal/run/amp/a.go",
			source("internal/run", "internal/run/claude", "internal/gate"), nil,
		},
		{
			"a sub-package is bound as its room is", "internal/ledger/tree/a.go", source("internal/gate"),
			[]string{"internal/ledger/tree/a.go imports internal/gate: gate does not stand above ledger on the staircase"},
		},
		{
			"the top imports what it shows", "internal/cli/a.go",
			source("internal/server", "internal/web", "internal/task", "client"), nil,
		},
		{
			"the dashboard imports the server", "internal/web/a.go", source("internal/server"),
			[]string{"internal/web/a.go imports internal/server: server does not stand above web on the staircase"},
		},
		{
			"main does more than call cli", "cmd/signalbox/main.go", source("internal/cli", "internal/server"),
			[]string{"cmd/signalbox/main.go imports internal/server: main is a table of " +
				"contents: it calls cli and nothing else"},
		},
		{
			"a test of main looks into everything", "cmd/signalbox/a_test.go",
			source("internal/ledger", "internal/store/storetest"), nil,
		},
		{
			"the client brings the store", "client/a.go", source("internal/wire", "internal/store"),
			[]string{"client/a.go imports internal/store: agents link the client into their " +
				"programs: it brings no server and no database"},
		},
		{"a client imports what the clients share", "client/ahp/a.go", source("client/internal/strict"), nil},
		{
			"what the clients share brings the server's reader", "client/internal/strict/a.go", source("internal/wire"),
			[]string{"client/internal/strict/a.go imports internal/wire: agents link the clients into their programs: what " +
				"these share brings the standard library alone"},
		},
		{
			"the core imports the client", "internal/gate/a.go", source("client"),
			[]string{"internal/gate/a.go imports client: only what is on the staircase is there to be imported"},
		},
		{
			"a package that is no room", "internal/util/a.go", source("internal/fault"),
			[]string{"internal/util is no room of the architecture: add it to the staircase here and in " +
				"ARCHITECTURE.md, or put the code where it belongs"},
		},
		{
			"a helper of tests outside of tests", "internal/ledger/a.go", source("internal/store/storetest"),
			[]string{"internal/ledger/a.go imports internal/store/storetest: a helper of tests is imported by tests only"},
		},
		{"a helper of tests in a test", "internal/ledger/a_test.go", source("internal/store/storetest"), nil},
		{"the shared helper in a test", "internal/fault/a_test.go", source("internal/testbed"), nil},
		{"the shared helper in another", "internal/store/storetest/a.go", source("internal/testbed"), nil},
		{
			"the shared helper outside of tests", "internal/cli/a.go", source("internal/testbed"),
			[]string{"internal/cli/a.go imports internal/testbed: a helper of tests is imported by tests only"},
		},
		{
			"the shared helper knows a room", "internal/testbed/a.go", source("internal/store"),
			[]string{"internal/testbed/a.go imports internal/store: every test may stand on " +
				"it, so it stands on nothing of ours"},
		},
		{
			"a helper of tests in another", "internal/ledger/ledgertest/a.go",
			source("internal/store/storetest", "modernc.org/modernc"), nil,
		},
		{
			"a driver outside of store", "internal/ledger/a.go", source("github.com/jackc/pgx/v5", "modernc.org/sqlite/lib"),
			[]string{
				"internal/ledger/a.go imports github.com/jackc/pgx/v5: only store may, what the " +
					"databases do differently lives in store, nowhere else",
				"internal/ledger/a.go imports modernc.org/sqlite/lib: only store may, what the " +
					"databases do differently lives in store, nowhere else",
			},
		},
		{
			"a driver in store, its helper, and a test", "internal/store/storetest/a.go",
			source("github.com/jackc/pgx/v5/stdlib"), nil,
		},
		{"a driver in a test", "internal/ledger/a_test.go", source("github.com/jackc/pgx/v5"), nil},
		{
			"a tree outside of ledger", "internal/mail/a.go", source("golang.org/x/mod/sumdb/tlog", "golang.org/x/mod/semver"),
			[]string{"internal/mail/a.go imports golang.org/x/mod/sumdb/tlog: only ledger may, one " +
				"package answers for the tree and its proofs"},
		},
		{
			"CEL outside of policy", "internal/gate/a.go", source("cel.dev/cel-go/cel"),
			[]string{"internal/gate/a.go imports cel.dev/cel-go/cel: only policy may, a rule is " +
				"evaluated in one place, with one cost limit"},
		},
		{
			"a command line in main", "cmd/signalbox/main.go", source("github.com/spf13/cobra", "github.com/spf13/pflag"),
			[]string{
				"cmd/signalbox/main.go imports github.com/spf13/cobra: only cli may, nothing but " +
					"the command line knows that there is one",
				"cmd/signalbox/main.go imports github.com/spf13/pflag: only cli may, nothing but " +
					"the command line knows that there is one",
			},
		},
		{
			"a terminal in web", "internal/web/a.go", source("charm.land/bubbletea/v2", "charm.land/lipgloss/v2"),
			[]string{
				"internal/web/a.go imports charm.land/bubbletea/v2: only cli may, nothing but the command line draws on a terminal",
				"internal/web/a.go imports charm.land/lipgloss/v2: only cli may, nothing but the command line draws on a terminal",
			},
		},
		{
			"strict JSON outside of wire", "internal/task/a.go", source("github.com/go-json-experiment/json/jsontext"),
			[]string{"internal/task/a.go imports github.com/go-json-experiment/json/jsontext: only wire may, " +
				"how strict we are with JSON is decided once"},
		},
		{
			"lenient JSON without a reason", "internal/task/a.go", source("encoding/json"),
			[]string{"internal/task/a.go imports encoding/json: JSON has one meaning, that of wire; where another is needed, " +
				"a comment beside the import says why"},
		},
		{
			"lenient JSON with a reason", "internal/task/a.go",
			twoSentences + "package x\nimport _ \"encoding/json\" // digests depend on it\n", nil,
		},
		{
			"lenient JSON with a reason above", "client/a.go",
			twoSentences + "package x\nimport (\n\t// Agents link nothing else.\n\t_ \"encoding/json\"\n)\n", nil,
		},
		{"lenient JSON in wire", "internal/wire/a.go", source("encoding/json"), nil},
		{"lenient JSON in a helper of tests", "internal/ledger/ledgertest/a.go", source("encoding/json"), nil},
		{"lenient JSON in a test", "internal/task/a_test.go", source("encoding/json"), nil},
		{
			"no package comment", "internal/gate/a.go", "package x\n",
			[]string{"internal/gate has a package comment of 0 sentences: a reader needs at least " +
				"two, what it owns and what it must not know"},
		},
		{
			"a package comment of one sentence", "internal/gate/a.go",
			"// Package x is at version 1.2 of something.\npackage x\n",
			[]string{"internal/gate has a package comment of 1 sentences: a reader needs at least " +
				"two, what it owns and what it must not know"},
		},
		{"a package of tests needs no comment", "internal/gate/a_test.go", "package x\n", nil},
		{
			"an init function", "internal/gate/a.go", twoSentences + "package x\nfunc init() {}\n",
			[]string{"internal/gate/a.go has an init function: nothing happens that main did not ask for, and order is visible"},
		},
		{"a method named init", "internal/gate/a.go", twoSentences + "package x\ntype t int\nfunc (t) init() {}\n", nil},
		{"an init function in a test", "internal/gate/a_test.go", "package x\nfunc init() {}\n", nil},
		{"a file of 600 lines", "internal/gate/a.go", twoSentences + "package x\n" + strings.Repeat("\n", 598), nil},
		{
			"a file of 601 lines", "internal/gate/a_test.go", "package x\n" + strings.Repeat("\n", 600),
			[]string{"internal/gate/a_test.go has 601 lines: a file reads in one sitting, none is longer than 600"},
		},
		{
			"a handler that translates", "internal/gate/a.go",
			handler(`limit := r.URL.Query().Get("limit"); _, _ = w.Write(g.List(r.Context(), limit))`), nil,
		},
		{
			"a handler with SQL", "internal/gate/a.go", handler("x := `\nSELECT seq FROM gate`"),
			[]string{"internal/gate/a.go: handle (SELECT seq) speaks HTTP and asks a database: handlers decode, call a method " +
				"and encode, so that others can call it, too"},
		},
		{
			"a handler that writes", "internal/gate/a.go",
			handler("g.core.Ledger.Write(r.Context(), func(tx *ledger.Tx) error { return nil })"),
			[]string{"internal/gate/a.go: handle (Write) speaks HTTP and asks a database: handlers decode, call a method and " +
				"encode, so that others can call it, too"},
		},
		{
			"a handler inside of a function", "internal/gate/a.go",
			twoSentences + "package x\nfunc routes() any { return func(r *http.Request) { db.QueryRow() } }\n",
			[]string{"internal/gate/a.go: routes (QueryRow) speaks HTTP and asks a database: handlers decode, call a method " +
				"and encode, so that others can call it, too"},
		},
		{
			"SQL where it belongs", "internal/gate/a.go",
			twoSentences + "package x\nfunc (g *Gates) Get() { g.db.QueryRow(`SELECT 1`) }\n", nil,
		},
		{
			"a room of 4,501 lines", "internal/gate/a.go", twoSentences + "package x\n" + strings.Repeat("\n", 4499),
			[]string{
				"internal/gate has 4501 lines: a package past 4500 is two nouns",
				"internal/gate/a.go has 4501 lines: a file reads in one sitting, none is longer than 600",
			},
		},
		{
			"a test that reads entries by itself", "internal/gate/a_test.go",
			"package x\nconst q = `SELECT seq FROM " + entryTable + "`\n",
			[]string{"internal/gate/a_test.go names the table of entries: only ledger does; tests have ledgertest"},
		},
		{"entries where they belong", "internal/ledger/a_test.go", "package x\nconst q = `" + entryTable + "`\n", nil},
		{"another module", "tools/a.go", "package x\nfunc init() {}\n", nil},
		{"test data", "internal/gate/testdata/a.go", "package x\nfunc init() {}\n", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			pkgs, err := readModule(fstest.MapFS{
				"go.mod": {}, "tools/go.mod": {},
				c.path: {Data: []byte(c.source)},
			})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, p := range pkgs {
				got = append(got, broken(p)...)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestAFolderOfSomebodysMachineIsFound(t *testing.T) {
	home := "/" + "home" + "/ann" // in two parts, so that this file may be tracked
	for text, want := range map[string]bool{
		home:                              true,
		"cd " + home + "/signalbox":       true,
		`dir = "` + home + `"`:            true,
		"file:" + home:                    true,
		"[here](" + home + ")":            true,
		"PATH=/usr/bin:" + home:           true,
		"https://example.com" + home:      false,
		"/tmp/x /usr/lib/x /etc/passwd":   false,
		"a page at /" + "home/ of a site": false,
		"internal/" + "work/x":            false,
	} {
		if got := developersPath.MatchString(text); got != want {
			t.Errorf("%q: found is %v", text, got)
		}
	}
}
