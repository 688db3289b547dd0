package server_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"signalbox/internal/gate"
	"signalbox/internal/ledger"
	"signalbox/internal/server"
	"signalbox/internal/server/servertest"
)

// fillWithEntries writes a million entries, of which some are gates. Their risk is low, so
// that what comes while one watches stands above them.
func fillWithEntries(b *testing.B, config *server.Config) {
	b.Helper()
	fill(b, config, 1000, func(tx *ledger.Tx, _ int) error {
		for i := range 999 {
			tx.Append(ledger.Event{
				Workspace: "default", Kind: "step.allowed", Actor: "agent:x", Subject: fmt.Sprint("s", i),
				Body: map[string]string{"tool": "bash"},
			})
		}
		return openSample(tx, gate.Risks[0])
	})
}

// BenchmarkTheDashboard measures the first page and a live event among a million entries,
// and what 200 people who watch cost the server while ten entries a second come in.
func BenchmarkTheDashboard(b *testing.B) {
	dir := b.TempDir()
	fillWithEntries(b, servertest.Load(b, map[string]string{"data": dir}))
	s := start(b, "", map[string]string{"data": dir})
	v := s.signedIn(s.token())
	b.Run("first page", func(b *testing.B) {
		for _, path := range []string{"/ui/inbox", "/ui/overview", "/ui/agents"} {
			var took []time.Duration
			for range 40 {
				began := time.Now()
				v.sees(path)
				took = append(took, time.Since(began))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms-"+path[4:])
			b.ReportMetric(float64(took[len(took)-1].Microseconds())/1000, "worst-ms-"+path[4:])
		}
		b.ReportMetric(0, "ns/op")
	})
	b.Run("live event", func(b *testing.B) {
		quiet(b)
		_, key := s.addAgent("letters")
		p := s.tab(b, chromium(b), s.token())
		p.observe()
		for name, pause := range map[string]time.Duration{"quiet": 300 * time.Millisecond, "burst": 20 * time.Millisecond} {
			var took []time.Duration
			answered := map[string]time.Time{}
			for i := range 20 {
				title := fmt.Sprint("Letter ", i, " of a ", name)
				s.ask(key, "letters", fmt.Sprint(name, i), title)
				answered[title] = time.Now()
				time.Sleep(pause) // the pace that is measured
			}
			for title, at := range answered {
				took = append(took, p.after(at, title))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms-"+name)
			b.ReportMetric(float64(took[len(took)-1].Microseconds())/1000, "worst-ms-"+name)
		}
		b.ReportMetric(0, "ns/op")
	})
	b.Run("200 watchers", func(b *testing.B) {
		quiet(b)
		ctx, cancel := context.WithCancel(b.Context())
		var watching sync.WaitGroup
		var events atomic.Int64
		for range 200 {
			watching.Go(func() {
				req, _ := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/ui/events?on=gate", nil)
				for _, c := range v.Jar.Cookies(req.URL) {
					req.AddCookie(c)
				}
				res, err := http.DefaultClient.Do(req)
				if err != nil {
					return
				}
				defer func() { _ = res.Body.Close() }()
				lines := bufio.NewScanner(res.Body)
				for lines.Scan() {
					if lines.Text() != "event: change" {
						continue
					}
					events.Add(1)
					page, err := v.Get(s.url + "/ui/inbox") // as the script does
					if err != nil {
						return
					}
					_, _ = io.Copy(io.Discard, page.Body)
					_ = page.Body.Close()
				}
			})
		}
		_, key := s.addAgent("busy")
		before, began := cpu(), time.Now()
		for i := range 50 {
			s.ask(key, "busy", fmt.Sprint("busy-", i), "Do it")
			time.Sleep(100 * time.Millisecond) // the pace that is measured
		}
		b.ReportMetric((cpu()-before).Seconds()/time.Since(began).Seconds(), "cores-with-clients")
		b.ReportMetric(float64(events.Load()), "pages")
		cancel()
		watching.Wait()
		b.ReportMetric(0, "ns/op")
	})
}

// quiet waits until those who follow the ledger have caught up with what was filled in.
func quiet(b *testing.B) {
	b.Helper()
	for begun := time.Now(); time.Since(begun) < 3*time.Minute; {
		before := cpu()
		time.Sleep(500 * time.Millisecond)
		if cpu()-before < 25*time.Millisecond {
			return
		}
	}
	b.Fatal("the server does not come to rest")
}

// cpu is how much this process has used.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // never fails
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
