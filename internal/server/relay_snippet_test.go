package server_test

import (
	"html"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"signalbox/internal/testbed"
)

// TestTheSnippetsRun registers an agent for each language in the dashboard, and runs what
// is there to copy, as it stands, until the decision that it asks for is taken.
func TestTheSnippetsRun(t *testing.T) {
	b := start(t, "", nil)
	v := b.signedIn(b.token())
	dir := t.TempDir()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	readme := testbed.Read(t, filepath.Join(here, "..", "..", "README.md"))
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		testbed.Write(t, path, text)
		return path
	}
	for _, c := range []struct {
		language, program string
		arguments         func(snippet string) []string
		prints            string
	}{
		{"curl", "sh", func(s string) []string { return []string{"-c", s} }, `"approved"`},
		{"Python", "python3", func(s string) []string { return []string{write("ask.py", s)} }, "approved"},
		{"TypeScript", "node", func(s string) []string {
			return []string{write("ask.mjs", s+"\nconsole.log(status);")}
		}, "approved"},
		{"Go", "sh", func(s string) []string {
			var steps []string
			main := write("main.go",
				"package main\n\nimport (\n\t\"context\"\n\t\"fmt\"\n\n\t\"signalbox/client\"\n"+
					")\n\nfunc ask(ctx context.Context) error {\n"+s+"\n}\n\n"+
					"func send(context.Context) error { fmt.Println(\"sent\"); return nil }\n\nfunc main() {\n"+
					"\tif err := ask(context.Background()); err != nil {\n\t\tpanic(err)\n\t}\n}\n")
			// The README's way to use the client from a checkout.
			root := filepath.Dir(filepath.Dir(here))
			for _, line := range regexp.MustCompile(`(?m)^(go mod .*)$`).FindAllStringSubmatch(string(readme), -1) {
				steps = append(steps, strings.ReplaceAll(line[1], "../signalbox", root))
			}
			if len(steps) != 2 {
				t.Fatalf("the README says how in %d lines: %v", len(steps), steps)
			}
			return []string{"-c", "cd " + filepath.Dir(main) + " && " + strings.Join(append(steps, "go run ."), " && ")}
		}, "sent"},
	} {
		t.Run(c.language, func(t *testing.T) {
			testbed.Program(t, c.program)
			_, page, _ := v.post("/ui/agents/new", url.Values{"name": {"agent-of-" + strings.ToLower(c.language)}})
			found := regexp.MustCompile(`(?s)<summary>` + c.language +
				`</summary>.*?<pre [^>]*>(.*?)</pre>`).FindStringSubmatch(page)
			if found == nil {
				t.Fatalf("there is no snippet: %s", page)
			}
			cmd := exec.CommandContext(t.Context(), c.program, c.arguments(html.UnescapeString(found[1]))...)
			cmd.Env = append(os.Environ(), "NO_PROXY=*", "no_proxy=*")
			var out strings.Builder
			cmd.Stdout, cmd.Stderr = &out, &out
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			var err error
			testbed.Until(b.t, "it asks, or ends", func() bool {
				select {
				case err = <-ended:
					return true
				default:
				}
				gate := v.firstGate()
				if gate == "" {
					return false
				}
				v.vote(gate, url.Values{"do": {"approve"}})
				err = <-ended
				return true
			})
			if err != nil || !strings.Contains(out.String(), c.prints) {
				t.Errorf("%v\n%s", err, out.String())
			}
		})
	}
}
