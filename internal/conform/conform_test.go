package conform_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"signalbox/internal/conform"
	"signalbox/internal/server/servertest"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

// start runs a server and returns it with a kit for it, with an agent and the operator's
// token.
func start(t *testing.T, settings map[string]string) (*conform.Kit, *servertest.Box) {
	t.Helper()
	b := servertest.Start(t, settings)
	return &conform.Kit{URL: b.URL, Agent: "resume-tailor", Token: b.Token(), Key: b.Agent("resume-tailor")["signal"]}, b
}

func suite(t *testing.T) *conform.Suite {
	t.Helper()
	s, err := conform.SignalSuite()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A listener on every address makes the cases run that are not for loopback.
func TestOurServerPassesEveryCase(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		k, b := start(t, map[string]string{"db": address, "listen": "0.0.0.0:0"})
		k.Public = true
		shows := func(path string) string {
			t.Helper()
			status, answer, _ := b.Do(servertest.Request{Call: "GET " + path, Token: k.Token})
			if status != http.StatusOK {
				t.Fatal(answer)
			}
			return answer
		}
		before := shows("/ops/policy")
		report, err := k.Run(t.Context(), suite(t))
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range report.Cases {
			if c.Outcome != "passed" {
				t.Errorf("%s: %s: %s", c.Outcome, c.Name, c.Problem)
			}
		}
		if report.Passed < 80 {
			t.Errorf("only %d cases were run", report.Passed)
		}
		if after := shows("/ops/policy"); before != after {
			t.Errorf("the policy was not put back:\n%s", after)
		}
		if left := shows("/ops/gates?status=pending"); !strings.Contains(left, `"gates":[]`) {
			t.Errorf("gates are left: %.500s", left)
		}
		decks := []string{"7", "conform", "conform-deck-2", "default", strings.Repeat("p", 63)}
		if len(report.Open) != 0 || !slices.Equal(report.Decks, decks) {
			t.Errorf("it says that it left the gates %s in the decks %s", report.Open, report.Decks)
		}
		var there struct{ Decks []struct{ Name string } }
		testbed.Until(t, "the decks", func() bool {
			b.Ops(200, "GET /ops/decks", "", &there)
			return len(there.Decks) >= len(decks)
		})
		for _, d := range there.Decks {
			if !slices.Contains(decks, d.Name) {
				t.Errorf("it left the deck %s", d.Name)
			}
		}
	})
}

func TestWithoutAnOperatorCasesAreSkippedAndSaySo(t *testing.T) {
	k, b := start(t, nil)
	k.Token = ""
	report, err := k.Run(t.Context(), suite(t))
	if err != nil {
		t.Fatal(err)
	}
	var left struct{ Gates []struct{ ID string } }
	b.Ops(200, "GET /ops/gates?status=pending&limit=1000", "", &left)
	if len(left.Gates) == 0 || len(report.Open) != len(left.Gates) {
		t.Errorf("%d gates wait, and it says that it left %d", len(left.Gates), len(report.Open))
	}
	if report.Failed != 0 || report.Passed < 80 || report.Skipped < 10 {
		t.Errorf("%d passed, %d failed, %d skipped", report.Passed, report.Failed, report.Skipped)
	}
	for _, c := range report.Cases {
		if c.Outcome == "failed" || c.Outcome == "skipped" && c.Problem == "" {
			t.Errorf("%+v", c)
		}
	}
}

// mistake is one that a server could make, and a case that should find it.
type mistake struct {
	name, found string
	change      func(r *http.Response, body string) string
}

var mistakes = []mistake{
	{"a fourth field", "the payload of the document is taken", func(_ *http.Response, body string) string {
		return strings.Replace(body, `"status":`, `"extra":1,"status":`, 1)
	}},
	{"gate_id left out instead of null", "only what is required is enough", func(_ *http.Response, body string) string {
		return strings.Replace(body, `"gate_id":null,`, "", 1)
	}},
	{"200 for pending", "declared, and the rule says gate", func(r *http.Response, body string) string {
		if r.StatusCode == http.StatusAccepted {
			r.StatusCode = http.StatusOK
		}
		return body
	}},
	{"approved for rejected", "declared, and the rule says block", func(_ *http.Response, body string) string {
		return strings.Replace(body, `"status":"rejected"`, `"status":"approved"`, 1)
	}},
	{"500 for 400", "summary missing", func(r *http.Response, body string) string {
		if r.StatusCode == http.StatusBadRequest {
			r.StatusCode = http.StatusInternalServerError
		}
		return body
	}},
	{"no AMP-Duplicate", "the same again is a poll", func(r *http.Response, body string) string {
		r.Header.Del("AMP-Duplicate")
		return body
	}},
	{"no AMP-Warnings", "unknown fields are taken and warned of", func(r *http.Response, body string) string {
		r.Header.Del("AMP-Warnings")
		return body
	}},
	{
		"who decided, to everybody", "who decided is not named unless it is asked for",
		func(r *http.Response, body string) string {
			r.Header.Set("AMP-Resolved-By", "admin")
			return body
		},
	},
	{"nobody who decided", "who decided is named where it is asked for", func(r *http.Response, body string) string {
		r.Header.Del("AMP-Resolved-By")
		return body
	}},
	{"another code for a foreign agent", "agent_id of somebody else", func(_ *http.Response, body string) string {
		return strings.Replace(body, "agent_scope", "forbidden", 1)
	}},
	{
		"details that leave a field out", "every wrong field is reported at once",
		func(_ *http.Response, body string) string {
			return strings.Replace(body, `"gate_required":`, `"x":`, 1)
		},
	},
	{"no supported versions", "amp_version a number", func(_ *http.Response, body string) string {
		return strings.Replace(body, `"supported"`, `"known"`, 1)
	}},
}

// The kit must be able to fail: each mistake is put between it and a server that makes
// none, and has to be found by the case that is about it.
func TestAServerWithAMistakeFails(t *testing.T) {
	k, _ := start(t, nil)
	target, err := url.Parse(k.URL)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mistakes {
		t.Run(m.name, func(t *testing.T) {
			proxy := passOn(target)
			proxy.ModifyResponse = func(r *http.Response) error {
				if !strings.HasPrefix(r.Request.URL.Path, "/amp/") || r.Header.Get("Content-Type") != "application/json" {
					return nil
				}
				body, err := io.ReadAll(r.Body)
				text := m.change(r, string(body))
				r.Body = io.NopCloser(strings.NewReader(text))
				r.ContentLength = int64(len(text))
				r.Header.Set("Content-Length", fmt.Sprint(len(text)))
				return err
			}
			between := testbed.ServeHTTP(t, proxy)
			wrong := *k
			wrong.URL = between
			s := suite(t)
			s.Cases = s.Cases[:0:0]
			for _, c := range suite(t).Cases {
				if c.Name == m.found {
					s.Cases = append(s.Cases, c)
				}
			}
			report, err := wrong.Run(t.Context(), s)
			if err != nil || report.Failed != 1 || len(report.Cases) != 1 {
				t.Errorf("%+v %v", report, err)
			}
		})
	}
}

func TestAServerThatIsNoneFailsEveryCaseItIsAsked(t *testing.T) {
	nobody := testbed.ServeHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"ok":true}`))
	}))
	report, err := (&conform.Kit{URL: nobody, Agent: "a", Key: "k"}).Run(testbed.Context(t), suite(t))
	if err != nil || report.Passed != 0 || report.Failed < 80 {
		t.Errorf("%d passed, %d failed, %v", report.Passed, report.Failed, err)
	}
}

// passOn is a proxy that does not say that it is one: a server closes what is open on its own machine to calls
// that were forwarded.
func passOn(to *url.URL) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }}
}

// harnessSuite are the cases.
func harnessSuite(t *testing.T) *conform.HarnessSuite {
	t.Helper()
	s, err := conform.HarnessCases(nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// fixture puts the policy of the cases in force.
func fixture(b *servertest.Box) {
	b.T.Helper()
	status, answer, _ := b.Do(servertest.Request{
		Call: "PUT /ops/policy", Token: b.Token(),
		Body: string(conform.HarnessPolicy()), Media: "application/yaml",
	})
	if status != http.StatusOK {
		b.T.Fatal(answer)
	}
}

func TestOurServerPassesEveryCaseOfAHPOnEveryTransport(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		k, b := start(t, map[string]string{"db": address})
		fixture(b)
		suite := harnessSuite(t)
		for _, target := range []string{
			k.URL, strings.Replace(k.URL, "http", "ws", 1) + "/ahp",
			"unix:" + filepath.Join(b.Config.Data, "ahp.sock"),
		} {
			kit := conform.HarnessKit{Target: target, Key: k.Key}
			report, err := kit.Run(t.Context(), suite)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range report.Cases {
				if c.Outcome == "failed" ||
					c.Outcome == "skipped" && !strings.HasPrefix(c.Problem, "it is about clients") &&
						!strings.HasPrefix(c.Problem, "it is not about") {
					t.Errorf("%s: %s: %s %s", target, c.Name, c.Outcome, c.Problem)
				}
			}
			if report.Passed < 130 {
				t.Errorf("%s: only %d cases were passed", target, report.Passed)
			}
		}
	})
}

// A harness that makes one mistake has to be found out by the cases about it.
func TestAMistakeOfAHarnessIsFound(t *testing.T) {
	k, b := start(t, nil)
	fixture(b)
	for _, c := range []struct{ name, from, to string }{
		{"allows what should be blocked", `"decision":"block"`, `"decision":"allow"`},
		{"changes an id", `"id":"5b0e6e8c`, `"id":"6b0e6e8c`},
		{"has another code", "-32602", "-32603"},
		{"speaks another version", `"protocol_version":"2.4"`, `"protocol_version":"2.3"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			target, err := url.Parse(k.URL)
			if err != nil {
				t.Fatal(err)
			}
			proxy := passOn(target)
			proxy.ModifyResponse = func(res *http.Response) error {
				text, err := io.ReadAll(res.Body)
				text = bytes.ReplaceAll(text, []byte(c.from), []byte(c.to))
				res.Body = io.NopCloser(bytes.NewReader(text))
				return err
			}
			s := testbed.ServeHTTP(t, proxy)
			kit := conform.HarnessKit{Target: s, Key: k.Key}
			report, err := kit.Run(t.Context(), harnessSuite(t))
			if err != nil || report.Failed == 0 {
				t.Errorf("%d failed, %v", report.Failed, err)
			}
		})
	}
}

func TestAFileOfCasesThatIsNoneIsRefused(t *testing.T) {
	for _, text := range []string{"", "[]", `{"cases":[]}`, `{"cases":3}`} {
		if _, err := conform.HarnessCases([]byte(text)); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
	kit := conform.HarnessKit{Target: " "}
	if _, err := kit.Run(t.Context(), harnessSuite(t)); err == nil {
		t.Error("a target of nothing is taken")
	}
}
