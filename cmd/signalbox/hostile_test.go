package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/hinshun/vt10x"

	"signalbox/internal/show"
	"signalbox/internal/show/showtest"
)

// onScreen is what a terminal shows that is given a text, without its spaces: lines are wrapped.
func onScreen(text string) string {
	screen := vt10x.New(vt10x.WithSize(2000, 1200))
	_, _ = screen.Write([]byte(strings.ReplaceAll(text, "\n", "\r\n")))
	return withoutSpaces(screen.String())
}

func withoutSpaces(text string) string { return strings.Join(strings.Fields(text), "") }

// TestATerminalShowsWhatStandsThere has an agent write hostile texts wherever it can, and reads what the
// commands print about it from a terminal: it shows what was printed, and that says what the text is.
func TestATerminalShowsWhatStandsThere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := up(t, dir)
	mustRun(t, dir, "policy", "apply", writeFile(t, "version: 1\nrules: [{name: all, on: [signal], then: gate}]\n"))
	key := strings.TrimSpace(regexp.MustCompile(`rs-amp-\S+`).FindString(mustRun(t, dir, "agents", "add", "asker")))
	post := func(path, body string) (answer struct{ ID string }) {
		status, text, err := p.call("POST", path, body)
		if err != nil || status > 202 || json.Unmarshal([]byte(text), &answer) != nil {
			t.Fatalf("%s: %d %s %v", path, status, text, err)
		}
		return answer
	}
	read := func(args ...string) string {
		t.Helper()
		printed := mustRun(t, dir, args...)
		if got, want := onScreen(printed), withoutSpaces(printed); got != want {
			t.Errorf("%v: the terminal shows %.2000q\nof %.2000q", args, got, want)
		}
		document := mustRun(t, dir, append(args, "--json")...)
		if strings.ContainsFunc(document, func(r rune) bool { return !unicode.IsGraphic(r) && r != '\n' }) {
			t.Errorf("%v --json prints %+q", args, document)
		}
		return withoutSpaces(printed)
	}
	for _, h := range showtest.All(t) {
		if strings.ContainsRune(h.Text, 0) || strings.TrimSpace(h.Text) == "" || len(h.Text) > 4000 {
			continue // which is refused
		}
		quoted, _ := json.Marshal(h.Text) // a text can always be written
		ask(t, p, key, "run-"+h.Name, string(quoted[1:len(quoted)-1]))
		var waiting struct{ Gates []struct{ ID string } }
		p.get("/ops/gates?limit=1", &waiting)
		run := post("/runs", fmt.Sprintf(`{"engine":"amp","prompt":%s,"recorded":true}`, quoted)).ID
		post("/runs/"+run+"/events", fmt.Sprintf(`{"from":1,"events":[{"event":{"type":"action","engine":"amp",`+
			`"action":{"id":"a","kind":"command","title":%[1]s,"detail":{}},"phase":"started"},"usage":{}},{"event":{`+
			`"type":"completed","engine":"amp","ok":true,"answer":%[1]s,"resume":null,"error":null,"usage":null},`+
			`"usage":{}}]}`, quoted))
		for _, args := range [][]string{{"gates", "show", waiting.Gates[0].ID}, {"runs", "show", run}} {
			if printed := read(args...); !strings.Contains(printed, withoutSpaces(show.Lines(h.Text))) {
				t.Errorf("%s: %v does not say %s:\n%.2000s", h.Name, args, show.Text(h.Text), printed)
			}
		}
	}
	for _, args := range []string{"gates ls", "runs ls", "ledger tail -n 300 --body", "status", "counters", "agents ls"} {
		read(strings.Fields(args)...)
	}
}
