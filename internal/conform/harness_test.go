package conform_test

import (
	"bytes"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"signalbox/internal/conform"
	"signalbox/internal/server/servertest"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

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
