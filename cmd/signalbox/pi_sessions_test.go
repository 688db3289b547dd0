package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"
)

// TestTwentySessionsOfTheRealPiResumeToThemselves although they begin so close together that the beginnings of their ids
// are the same: the model of each resumed run is sent what its own session has said, and nothing of another. The ids are
// time-ordered, and their first eight digits change every 65 seconds. How fast they begin depends on the machine, so that
// some share them is asked for, and not that all begin within 10 seconds.
func TestTwentySessionsOfTheRealPiResumeToThemselves(t *testing.T) {
	t.Parallel()
	const sessions, atOnce = 20, 5
	said := regexp.MustCompile(`(first|again) number ([0-9]+)\.`)
	var mu sync.Mutex
	heard := map[string][]string{} // what a model was sent, by what it was asked last
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var all []string
		for _, m := range said.FindAllSubmatch(body, -1) {
			all = append(all, string(m[1])+" "+string(m[2]))
		}
		if len(all) == 0 {
			http.NotFound(w, r)
			return
		}
		mu.Lock()
		heard[all[len(all)-1]] = all
		n := int64(len(heard))
		mu.Unlock()
		w.Header().Set("Content-Type", "text/event-stream")
		for _, e := range anthropic.events(n, turn{text: "Hello."}) {
			writeEvent(w, e)
		}
	}))
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	c, dir, work := modedCLIs["pi"], t.TempDir(), t.TempDir()
	configure(t, dir, fmt.Sprintf("runs: {pi: {command: %s, permissions: read}}\n", npmProgram(t, c.program)))
	p := up(t, dir)
	model := c
	model.text = func(string) string { return c.text(server.URL) }
	_, start := model.at(t, "pi", dir)
	talk := func(args ...string) error {
		out, err := start(work, append([]string{"--json"}, args...)...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%v: %w\n%s", args, err, out)
		}
		return nil
	}
	each := func(do func(i int) error) {
		t.Helper()
		var all errgroup.Group
		all.SetLimit(atOnce)
		for i := range sessions {
			all.Go(func() error { return do(i) })
		}
		if err := all.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	each(func(i int) error { return talk("--", fmt.Sprintf("first number %d.", i)) })
	var page struct {
		Runs []struct {
			Prompt, Resume string
			Line           string `json:"resume_line"`
		}
	}
	p.get("/runs?limit=100", &page)
	tokens, begins := map[string]string{}, map[string]int{}
	lines := make([]string, sessions)
	for _, r := range page.Runs {
		var i int
		if _, err := fmt.Sscanf(r.Prompt, "first number %d.", &i); err != nil || tokens[r.Resume] != "" || len(r.Resume) < 9 {
			t.Fatalf("%v %+v", err, r)
		}
		tokens[r.Resume], lines[i] = r.Prompt, r.Line
		begins[r.Resume[:8]]++
	}
	shared := 0
	for _, n := range begins {
		shared = max(shared, n)
	}
	t.Logf("%d sessions, of which %d begin with the same eight digits", len(tokens), shared)
	if len(tokens) != sessions || shared < 2 {
		t.Fatalf("there is nothing to tell apart: %v", tokens)
	}
	each(func(i int) error { return talk("--resume", lines[i], "--", fmt.Sprintf("again number %d.", i)) })
	for i := range sessions {
		got, err := json.Marshal(heard[fmt.Sprintf("again %d", i)])
		if want := fmt.Sprintf(`["first %d","again %d"]`, i, i); err != nil || string(got) != want {
			t.Errorf("session %d was sent %s, want %s", i, got, want)
		}
	}
	p.get("/runs?limit=100", &page)
	for _, r := range page.Runs {
		if again, ok := strings.CutPrefix(r.Prompt, "again"); ok && tokens[r.Resume] != "first"+again {
			t.Errorf("%q went on with the session of %q", r.Prompt, tokens[r.Resume])
		}
	}
}
