package archtest_test

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
)

const (
	module = "signalbox"
	// testbed is the helper of tests that belongs to no room.
	testbed = "internal/testbed"
)

// The staircase: a room imports only rooms that stand before it.
var (
	core = []string{
		"fault", "file", "wire", "id", "address", "store", "ledger", "clock", "proc", "scope", "recall", "refusal", "oidc", "roster",
		"alarm", "drift", "rekey", "witness",
		"price", "kin", "passkey", "secret", "reload", "ready", "show", "facts", "policy", "behalf", "handoff", "rulebook", "delegate", "gate",
		"counter", "deliver", "sink", "notify", "blob", "audit", "backup", "protocol",
	}
	protocols = readProtocols(os.DirFS(root))
	top       = []string{"mcp", "web", "telemetry", "server", "conform", "cli"}
	staircase = slices.Concat(core, protocols, top)
)

// outside are the packages that are not on the staircase, and what of ours they
// may import. Their tests start whole servers and may import anything.
var outside = map[string]struct {
	may []string
	why string
}{
	"cmd/signalbox": {[]string{"cli"}, "main is a table of contents: it calls cli and nothing else"},
	"client": {
		[]string{"fault", "wire", "id"},
		"agents link the client into their programs: it brings no server and no database",
	},
	"client/ahp": {nil, "agents link the client into their programs: it brings a WebSocket and nothing of ours"},
	"client/internal/strict": {
		nil,
		"agents link the clients into their programs: what these share brings the standard library alone",
	},
	"scripts/progress":  {nil, "it prints what go test says and needs none of what is tested"},
	"scripts/release":   {nil, "what makes a release does not depend on what is released"},
	"internal/archtest": {nil, "it reads the source and needs none of it"},
	testbed:             {nil, "every test may stand on it, so it stands on nothing of ours"},
}

// libraries are those that belong to one room. Tests may use them anywhere.
var libraries = []struct {
	prefix, room, why string
}{
	{"modernc.org/sqlite", "store", "what the databases do differently lives in store, nowhere else"},
	{"github.com/jackc/pgx", "store", "what the databases do differently lives in store, nowhere else"},
	{"golang.org/x/mod/sumdb", "ledger", "one package answers for the tree and its proofs"},
	{"cel.dev/cel-go", "policy", "a rule is evaluated in one place, with one cost limit"},
	{"github.com/google/cel-go", "policy", "a rule is evaluated in one place, with one cost limit"},
	{"mvdan.cc/sh", "facts", "what a shell text runs is found in one place"},
	{"github.com/spf13/cobra", "cli", "nothing but the command line knows that there is one"},
	{"github.com/spf13/pflag", "cli", "nothing but the command line knows that there is one"},
	{"charm.land", "cli", "nothing but the command line draws on a terminal"},
	{"github.com/charmbracelet", "cli", "nothing but the command line draws on a terminal"},
	{"github.com/go-json-experiment/json", "wire", "how strict we are with JSON is decided once"},
	{"github.com/rogpeppe/go-internal/diff", "web", "texts are compared in one place, with one limit"},
	{"github.com/tailscale/hujson", "cli", "only the settings of agent CLIs have comments"},
	{"github.com/yuin/goldmark", "web", "what agents wrote becomes HTML in one place, which answers for it"},
	{
		"github.com/santhosh-tekuri/jsonschema", "task",
		"the schemas of tasks are checked in one place, and their codes are made there",
	},
	{"github.com/modelcontextprotocol/go-sdk", "mcp", "a vendor's SDK stays in the package that talks to that vendor"},
	{"github.com/go-webauthn/webauthn", "passkey", "what a signature of a person is worth is decided in one place"},
	{"filippo.io/age", "backup", "what is encrypted for keeping, and for whom, is decided in one place"},
	{"github.com/go-telegram/bot", "notify", "a vendor's SDK stays in the package that talks to that vendor"},
	{"go.opentelemetry.io", "telemetry", "a vendor's SDK stays in the package that talks to that vendor"},
	{"github.com/wneessen/go-mail", "notify", "a vendor's SDK stays in the package that talks to that vendor"},
}

const (
	maxLines     = 600
	maxRoom      = 4500 // lines of a package without its tests; pages are many, and web is one noun all the same
	minSentences = 2
)

// entryTable is put together, so that a search for it finds package ledger alone.
const entryTable = "ledger_" + "entry"

// broken lists what a package breaks, one sentence each.
func broken(p pkg) []string {
	var out []string
	if p.hasCode() && sentences(p.doc) < minSentences {
		out = append(out, fmt.Sprintf("%s has a package comment of %d sentences: a reader needs at least two, "+
			"what it owns and what it must not know", p.dir, sentences(p.doc)))
	}
	if roomOf(p.dir) == "" {
		if _, known := outside[p.dir]; !known {
			out = append(out,
				p.dir+" is no room of the architecture: add it to the staircase here and in "+
					"ARCHITECTURE.md, or put the code where it belongs")
		}
	}
	if lines := p.lines(); lines > maxRoom && p.dir != "internal/web" {
		out = append(out, fmt.Sprintf("%s has %d lines: a package past %d is two nouns", p.dir, lines, maxRoom))
	}
	for _, f := range p.files {
		name := path.Join(p.dir, f.name)
		if f.lines > maxLines {
			out = append(out,
				fmt.Sprintf("%s has %d lines: a file reads in one sitting, none is longer than %d", name, f.lines, maxLines))
		}
		if f.hasInit && !f.test {
			out = append(out, name+" has an init function: nothing happens that main did not ask for, and order is visible")
		}
		if f.entries && roomOf(p.dir) != "ledger" {
			out = append(out, name+" names the table of entries: only ledger does; tests have ledgertest")
		}
		for _, query := range f.queries {
			if !f.test {
				out = append(out, fmt.Sprintf("%s: %s speaks HTTP and asks a database: handlers decode, call a method and "+
					"encode, so that others can call it, too", name, query))
			}
		}
		for _, imported := range f.imports {
			if why := forbidden(p.dir, f.test, imported); why != "" {
				out = append(out, fmt.Sprintf("%s imports %s: %s", name, strings.TrimPrefix(imported, module+"/"), why))
			}
			if imported == "encoding/json" && !f.test && !isHelper(p.dir) && roomOf(p.dir) != "wire" &&
				f.reasons[imported] == "" {
				out = append(out,
					name+" imports encoding/json: JSON has one meaning, that of wire; where another is "+
						"needed, a comment beside the import says why")
			}
		}
	}
	return out
}

// forbidden is the reason why a file in dir may not import the package, "" if it may.
func forbidden(dir string, test bool, imported string) string {
	if ours, ok := strings.CutPrefix(imported, module+"/"); ok {
		if isHelper(ours) && !test && !isHelper(dir) {
			return "a helper of tests is imported by tests only"
		}
		return wrongStep(dir, test, ours)
	}
	for _, l := range libraries {
		if under(imported, l.prefix) && !test && roomOf(dir) != l.room {
			return fmt.Sprintf("only %s may, %s", l.room, l.why)
		}
	}
	return ""
}

// wrongStep is the reason why a package of ours may not import another of ours.
func wrongStep(dir string, test bool, imported string) string {
	from, to := roomOf(dir), roomOf(imported)
	if dir == imported || (from != "" && from == to) {
		return "" // a room's tests and sub-packages are its own affair
	}
	if under(dir, "client") && under(imported, "client/internal") {
		return "" // the clients' own
	}
	if rule, ok := outside[dir]; ok {
		if test || slices.Contains(rule.may, to) {
			return ""
		}
		return rule.why
	}
	switch {
	case from == "": // no room at all, which is reported as such
		return ""
	case imported == testbed:
		return "" // by a test or a helper of tests, since it is one
	case under(imported, "client") && slices.Contains(top, from):
		return ""
	case to == "":
		return "only what is on the staircase is there to be imported"
	case slices.Contains(protocols, from) && slices.Contains(protocols, to):
		return "a protocol package never imports another; what two of them share belongs to the core"
	case slices.Index(staircase, to) > slices.Index(staircase, from):
		return fmt.Sprintf("%s does not stand above %s on the staircase", to, from)
	}
	return ""
}

// roomOf is the room that a package belongs to, "" for one that is in none.
func roomOf(dir string) string {
	rest, ok := strings.CutPrefix(dir, "internal/")
	if !ok {
		return ""
	}
	room, _, _ := strings.Cut(rest, "/")
	if !slices.Contains(staircase, room) {
		return ""
	}
	return room
}

// isHelper reports whether a package is like store/storetest, or the one that all share.
func isHelper(dir string) bool {
	return dir == testbed || path.Base(dir) == path.Base(path.Dir(dir))+"test"
}

// under reports whether the package is the one with the path or below it.
func under(imported, prefix string) bool {
	return imported == prefix || strings.HasPrefix(imported, prefix+"/")
}

// sentences counts the ends of sentences.
func sentences(doc string) int {
	n := 0
	for word := range strings.FieldsSeq(doc) {
		if strings.ContainsAny(word[len(word)-1:], ".!?") {
			n++
		}
	}
	return n
}
