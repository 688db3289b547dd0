package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/hinshun/vt10x"

	"signalbox/internal/gate"
	"signalbox/internal/run/runtest"
	"signalbox/internal/testbed"
)

// emulated is what a terminal shows that got all of this.
func (term *terminal) emulated() string {
	screen := vt10x.New(vt10x.WithSize(int(term.columns), int(term.rows)))
	_, _ = screen.Write([]byte(term.seen.String()))
	return screen.String()
}

// reads waits until a terminal shows the texts.
func (term *terminal) reads(texts ...string) {
	term.t.Helper()
	testbed.Until(term.t, fmt.Sprintf("%q on the screen", texts), func() bool {
		screen := strings.Join(strings.Fields(term.emulated()), " ")
		for _, text := range texts {
			if !strings.Contains(screen, text) {
				return false
			}
		}
		return true
	}, term)
}

// gated is a server at which everything waits for a person, and the key of an agent.
func gated(t *testing.T) (p *process, key string) {
	t.Helper()
	p = up(t, t.TempDir())
	mustRun(
		t,
		p.dir,
		"policy",
		"apply",
		writeFile(t, "version: 1\nrules: [{name: all, on: [signal, prompt], then: gate}]\n"),
	)
	if status, answer, err := p.call("PUT", "/ops/proxy/keys/anthropic", `{"key":"sk-ant-of-a-test"}`); status != 200 {
		t.Fatal(status, answer, err)
	}
	return p, regexp.MustCompile(`rs-amp-\S+`).FindString(mustRun(t, p.dir, "agents", "add", "asker"))
}

// prompt has the agent send a request to a model, which waits, and returns its gate.
func (p *process) prompt(t *testing.T, key, text string) (body string, g gate.Gate) {
	t.Helper()
	body = `{"model":"claude-sonnet-4-6","max_tokens":5,"messages":[{"role":"user","content":"` + text + `"}]}`
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.url+"/v1/proxy/v1/messages",
		strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{"Authorization": {"Bearer " + key}, "Content-Type": {"application/json"}}
	go func() {
		if res, err := http.DefaultClient.Do(req); err == nil {
			_ = res.Body.Close()
		}
	}()
	p.get("/ops/gates/"+p.pending(t), &g)
	return body, g
}

func TestAMebibyteIsReadWholeOnATerminal(t *testing.T) {
	t.Parallel()
	p, key := gated(t)
	var text strings.Builder
	for i := 0; text.Len() < 1_000_000; i++ {
		fmt.Fprintf(&text, "line %d of it\\n", i)
	}
	_, g := p.prompt(t, key, text.String()+"THE LAST LINE")
	if len(g.Unshown) != 0 {
		t.Fatalf("%v", g.Unshown)
	}
	term := openTerminal(t, 90, 25, "gates", "show", g.ID, "--data", p.dir)
	term.reads("gate " + g.ID)
	term.types("!") // less runs nothing
	term.reads("Command not available")
	term.types("\rG")
	term.reads("digest " + g.Digest)
	term.types("?THE LAST\r")
	term.reads("THE LAST LINE")
	term.types("q")
	term.ends()
	if out := mustRun(t, p.dir, "gates", "show", g.ID); !strings.Contains(out, "THE LAST LINE") {
		t.Error("a pipe does not get it")
	}

	// Who approves is shown all of it first.
	for _, answer := range []string{"no", ""} {
		term = openTerminal(t, 90, 25, "gates", "approve", g.ID, "--data", p.dir)
		term.reads("gate " + g.ID)
		term.types("Gq")
		term.reads("digest "+g.Digest, "Type yes")
		term.types(answer + "\r")
		term.reads("was not approved")
		<-term.done
	}
	term = openTerminal(t, 90, 25, "gates", "approve", g.ID, "--data", p.dir)
	term.reads("gate " + g.ID)
	term.types("q")
	term.reads("Type yes")
	term.types("yes\r")
	term.reads("is approved")
	term.ends()
}

func TestWhatIsNotShownIsApprovedInTwoStepsOnATerminal(t *testing.T) {
	t.Parallel()
	p, key := gated(t)
	body, g := p.prompt(t, key, strings.Repeat("fine ", 300_000)+"DELETE ALL "+strings.Repeat("fine ", 300_000))
	sum := sha256.Sum256([]byte(body))
	digest, unseen := hex.EncodeToString(sum[:]), fmt.Sprint(g.Unseen())
	if g.Unseen() == 0 {
		t.Fatal("all of it is shown")
	}
	status := func() gate.Status { p.get("/ops/gates/"+g.ID, &g); return g.Status }

	// The gate says what it does not show, and the file is what the agent has sent.
	shown := mustRun(t, p.dir, "gates", "show", g.ID)
	if !strings.Contains(shown, digest) || !strings.Contains(shown, "not shown  "+unseen) ||
		!strings.Contains(shown, "with --artifact 1 all of it is") || strings.Contains(shown, "DELETE ALL") {
		t.Errorf("%.3000s", shown[len(shown)-3000:])
	}
	file := filepath.Join(t.TempDir(), "request.json")
	mustRun(t, p.dir, "gates", "show", g.ID, "--artifact", "1", "--out", file)
	if got := testbed.Read(t, file); string(got) != body {
		t.Errorf("%d bytes of %d", len(got), len(body))
	}
	if out := mustRun(t, p.dir, "gates", "show", g.ID, "--artifact", "1"); out != body {
		t.Errorf("a pipe gets %d bytes of %d", len(out), len(body))
	}
	term := openTerminal(t, 90, 25, "gates", "show", g.ID, "--artifact", "1", "--data", p.dir)
	term.reads("claude-sonnet-4-6")
	term.types("/DELETE ALL\r")
	term.reads("DELETE ALL fine")
	term.types("q")
	term.ends()

	// A script, the digest alone, another number, and words are not enough.
	for _, args := range [][]string{
		{"--yes"}, {"--digest", g.Digest}, {"--digest", g.Digest, "--unseen", "1"}, {}, {"--yes", "--json"},
	} {
		code, out := run(t, p.dir, append([]string{"gates", "approve", g.ID}, args...)...)
		if code != 1 || !strings.Contains(out, "Not all that is decided is shown") || status() != gate.Pending {
			t.Errorf("%v: %d %.500s", args, code, out)
		}
	}
	term = openTerminal(t, 90, 25, "gates", "approve", g.ID, "--data", p.dir)
	term.reads("gate " + g.ID)
	term.types("q")
	term.reads("Not shown: "+unseen, "Type "+unseen)
	term.types("yes\r")
	term.reads("was not approved")
	<-term.done

	// On the whole screen the lines that nobody has scrolled to are asked about first.
	term = openTerminal(t, 120, 30, "gates", "watch", "--data", p.dir)
	term.sees("1 gate waits", "What is proposed")
	term.types("a")
	term.sees("lines below were not shown")
	below := regexp.MustCompile(`(\d+) lines below were not shown`).FindStringSubmatch(term.String())[1]
	term.types("\r")
	term.sees("Not approved.")
	term.types("a" + below + "\r")
	term.sees("The gate does not show " + unseen + " bytes")
	term.types(below + "\r")
	term.sees("Not approved.")
	if status() != gate.Pending {
		t.Error("it was approved")
	}
	term.types("a" + below + "\r" + unseen + "\r")
	term.sees("enter does it")
	term.types("\r")
	term.sees("Approved:")
	term.types("q")
	term.ends()

	_, g = p.prompt(t, key, strings.Repeat("good ", 600_000))
	mustRun(t, p.dir, "gates", "approve", g.ID, "--unseen", fmt.Sprint(g.Unseen()))
	if status() != gate.Approved {
		t.Error(g.Status)
	}
}

// TestARunOnATerminalThatIsNarrowedLosesNothing: what was there before stays, nothing of the run is there twice, and what
// was shown and nobody has recorded is there at the end, as are the warnings. The terminal is one that does not wrap its
// lines anew; for the others the rows are computed (internal/cli/run).
func TestARunOnATerminalThatIsNarrowedLosesNothing(t *testing.T) {
	t.Setenv("XTERM_VERSION", "XTerm(390)")
	hold := filepath.Join(t.TempDir(), "go")
	long := strings.Replace(fmt.Sprintf(runTool, "a"), `"ls"`, `"ls `+strings.Repeat("x", 100)+`"`, 1)
	malformed := `{"type":"assistant",` + "\n"
	data, folder := configured(t, runtest.CLI{Stdout: []byte(runInit + malformed + long + runResult), Hold: hold})
	term := openTerminal(t, 100, 40, "run", "amp", "--no-record", "--data", data, "--cwd", folder, "--", "go")
	term.shows("the step", func(screen string) bool { return strings.Contains(screen, "▸ $ ls") })
	screen, fed := vt10x.New(vt10x.WithSize(100, 40)), 0
	feed := func() string {
		text := term.seen.String()
		_, _ = screen.Write([]byte(text[fed:]))
		fed = len(text)
		return screen.String()
	}
	for _, columns := range []uint16{60, 33} {
		feed()
		term.columns = columns
		term.resize()
		screen.Resize(int(columns), int(term.rows))
		before := len(term.seen.String())
		testbed.Until(t, "two more drawings", func() bool {
			return strings.Count(term.seen.String()[before:], "working · amp") > 2
		}, term)
	}
	testbed.Write(t, hold, "")
	term.sees("completed · amp · ")
	term.ends()
	end := feed()
	for text, want := range map[string]int{
		"amp · mode edit": 1, "warning: amp wrote a line": 1, "$ ls": 1, "completed · amp · ": 1, "working": 0, "done": 1,
	} {
		if n := strings.Count(end, text); n != want {
			t.Errorf("%q is there %d times, want %d:\n%s", text, n, want, end)
		}
	}
}
