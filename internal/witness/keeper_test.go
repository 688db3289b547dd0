package witness_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"signalbox/internal/alarm"
	"signalbox/internal/ledger/ledgertest"
	"signalbox/internal/ledger/notes"
	"signalbox/internal/store/storetest"
	"signalbox/internal/wire"
	"signalbox/internal/witness"
)

func parts() []ledgertest.Part {
	return []ledgertest.Part{
		{Migrations: alarm.Migrations, Projection: alarm.Projection()},
		{Migrations: witness.Migrations},
	}
}

// keeper is a node of a witness, at an address.
type keeper struct {
	*ledgertest.Node
	*witness.Keeper
	web *httptest.Server
}

func keep(t *testing.T, address, dir string, logs ...string) *keeper {
	t.Helper()
	n := ledgertest.Open(t, address, nil, parts(), ledgertest.Dir(dir))
	n.Run()
	cosigner, err := notes.NewCosigner("witness.example/w1", bytes.Repeat([]byte{7}, 32))
	n.Must(err)
	known, err := witness.ParseLogs(logs)
	n.Must(err)
	k := &keeper{Node: n, Keeper: &witness.Keeper{
		DB: n.DB, Alarms: alarm.New(n.DB, n.Ledger), Cosigner: cosigner, Logs: known, Now: time.Now,
		Log: slog.New(slog.DiscardHandler),
	}}
	mux := http.NewServeMux()
	for _, route := range k.Routes() {
		mux.HandleFunc(route.Method+" "+route.Path, func(w http.ResponseWriter, r *http.Request) {
			if err := route.Handle(w, r); err != nil {
				wire.Fail(w, err)
			}
		})
	}
	k.web = httptest.NewServer(mux)
	t.Cleanup(k.web.Close)
	return k
}

// add calls add-checkpoint.
func (k *keeper) add(body string) (status int, answer, media string) {
	k.T.Helper()
	res, err := http.Post(k.web.URL+witness.Prefix+"/add-checkpoint", "text/plain", strings.NewReader(body))
	k.Must(err)
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	k.Must(err)
	return res.StatusCode, string(text), res.Header.Get("Content-Type")
}

// get reads a page of the witness.
func (k *keeper) get(path string) (int, string) {
	k.T.Helper()
	res, err := http.Get(k.web.URL + witness.Prefix + path)
	k.Must(err)
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	k.Must(err)
	return res.StatusCode, string(text)
}

func TestAWitnessCosignsALogThatOnlyGrows(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		log, other := newHistory(t, "log.example/one"), newHistory(t, "log.example/other")
		stranger := newHistory(t, "log.example/one")
		dir := t.TempDir()
		k := keep(t, address, dir, log.vkey)
		_, vkey := k.get("/key")
		sum := sha256.Sum256([]byte("log.example/one"))
		seen := "/" + hex.EncodeToString(sum[:]) + "/checkpoint"
		if status, _ := k.get(seen); status != http.StatusNotFound {
			t.Errorf("before it has cosigned anything: %d", status)
		}
		want := func(name, body string, status int, answer string) {
			t.Helper()
			got, text, media := k.add(body)
			if got != status || answer != "" && text != answer ||
				(status == http.StatusConflict) != (media == "text/x.tlog.size") {
				t.Errorf("%s: %d %q %s, want %d %q", name, got, text, media, status, answer)
			}
		}
		cosigned := func(old int64) {
			t.Helper()
			status, line, _ := k.add(log.addition(old))
			if status != http.StatusOK || !cosignatureHolds(t, line, vkey, log.text()) {
				t.Errorf("over %d entries after %d: %d %q", log.size, old, status, line)
			}
			if status, text := k.get(seen); status != http.StatusOK || text != log.sign(log.text())+line {
				t.Errorf("it shows %d %q", status, text)
			}
		}
		cosigned(0) // the empty tree
		log.grow("a", "b", "c")
		three := log.fork()
		cosigned(0)
		cosigned(3) // the same once more
		want("the answer was lost, and it is asked from the beginning", log.addition(0), 409, "3\n")
		log.grow("d", "e", "f", "g")
		want("an old size that was never cosigned", log.addition(2), 409, "3\n")
		cosigned(3)
		want("an earlier checkpoint", three.addition(3), 409, "7\n")
		want("an earlier checkpoint after the last", strings.Replace(three.addition(3), "old 3", "old 7", 1), 400, "")
		log.grow("h")
		good := log.addition(7)
		lines := strings.SplitAfter(good, "\n")
		for name, c := range map[string]struct {
			body   string
			status int
		}{
			"a log that is not listed":     {other.addition(0), 404},
			"the key of somebody else":     {strings.Replace(stranger.addition(0), "old 0", "old 7", 1), 403},
			"no signature":                 {"old 7\n\n" + log.text() + "\n", 403},
			"a signature that is spoilt":   {good[:len(good)-6] + "AAA=\n", 403},
			"a proof that lacks a line":    {strings.Replace(good, lines[1], "", 1), 422},
			"a proof in another order":     {lines[0] + lines[2] + lines[1] + strings.Join(lines[3:], ""), 422},
			"a number in another spelling": {"old 07" + strings.TrimPrefix(good, "old 7"), 400},
			"a number that is negative":    {"old -7" + strings.TrimPrefix(good, "old 7"), 400},
			"a line that is no hash":       {strings.Replace(good, lines[1], "abc\n", 1), 400},
			"64 lines of proof":            {lines[0] + strings.Repeat(lines[1], 64) + "\n" + log.sign(log.text()), 400},
			"a size in another spelling":   {"old 7\n\n" + log.sign(strings.Replace(log.text(), "\n8\n", "\n08\n", 1)), 400},
			"nothing":                      {"", 400},
			"a proof that nothing needs":   {strings.Replace(log.addition(8), "old 8\n", "old 8\n"+lines[1], 1), 409},
		} {
			want(name, c.body, c.status, "")
		}
		cosigned(7)
		// The same key signs another history.
		fork := three.fork()
		fork.grow("x", "y", "z", "1", "2")
		want("another history of the same size", fork.addition(8), 422, "")
		fork.grow("3")
		want("another history that has grown", fork.addition(8), 422, "")
		open, err := k.Alarms.List(t.Context(), false)
		k.Must(err)
		if len(open) != 1 || open[0].Kind != "witnessed_fork" {
			t.Errorf("alarms %+v", open)
		}
		// Another process of the same witness remembers.
		k.Stop()
		k = keep(t, address, dir, log.vkey)
		want("another history, after a restart", strings.Replace(fork.addition(0), "old 0", "old 0", 1), 409, "8\n")
		log.grow("i")
		cosigned(8)
	})
}

func TestOfTwoHistoriesThatComeAtOnceOneIsCosigned(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		dir := t.TempDir()
		first := newHistory(t, "log.example/one")
		nodes := []*keeper{keep(t, address, dir, first.vkey)}
		if strings.HasPrefix(address, "postgres") {
			nodes = append(nodes, keep(t, address, t.TempDir(), first.vkey))
		}
		second := first.fork()
		first.grow("a", "b")
		second.grow("a", "c")
		var mu sync.Mutex
		var all sync.WaitGroup
		cosigned := map[string]int{}
		for i := range 16 {
			h := []*history{first, second}[i/2%2]
			body, text := h.addition(0), h.text()
			all.Go(func() {
				status, _, _ := nodes[i%len(nodes)].add(body)
				if status == http.StatusOK {
					mu.Lock()
					defer mu.Unlock()
					cosigned[text]++
				}
			})
		}
		all.Wait()
		if len(cosigned) != 1 {
			t.Errorf("cosigned %v", cosigned)
		}
	})
}
