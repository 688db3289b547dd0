package engine_test

import (
	"strings"
	"testing"

	"signalbox/internal/run/engine"
)

func TestAnEnvironmentMayLeadThroughTheProxyAlready(t *testing.T) {
	const server = "http://127.0.0.1:7446"
	for _, c := range []struct {
		engine, base, key string
		want              string
		led               bool
	}{
		{"claude", server + "/v1/proxy", "rs-amp-1", "rs-amp-1", true},
		{"claude", "http://localhost:7446/v1/proxy/", "rs-amp-1", "rs-amp-1", true},
		{"claude", server + "/v1/proxy/a/rs-amp-2", "sk-ant", "rs-amp-2", true},
		{"codex", server + "/v1/proxy/a/rs-amp-2/openai/v1", "sk", "rs-amp-2", true},
		{"codex", server + "/v1/proxy/openai/v1", "rs-amp-1", "rs-amp-1", true},
		{"claude", server + "/v1/proxyless", "rs-amp-1", "", false},
		{"claude", "http://127.0.0.1:7447/v1/proxy", "rs-amp-1", "", false},
		{"claude", "https://127.0.0.1:7446/v1/proxy", "rs-amp-1", "", false},
		{"claude", "http://example.com:7446/v1/proxy", "rs-amp-1", "", false},
		{"claude", "%", "rs-amp-1", "", false},
		{"claude", "", "rs-amp-1", "", false},
		{"gemini", server + "/v1/proxy", "rs-amp-1", "", false},
	} {
		e, err := engine.Find(c.engine)
		if err != nil {
			t.Fatal(err)
		}
		variable := func(name string) string {
			if strings.HasSuffix(name, "_BASE_URL") {
				return c.base
			}
			if strings.HasSuffix(name, "_API_KEY") {
				return c.key
			}
			return ""
		}
		if key, led := e.Meter().Led(variable, server); key != c.want || led != c.led {
			t.Errorf("%s at %s: %q, %t", c.engine, c.base, key, led)
		}
	}
}

func TestAMeteredCodexCallsElsewhereWithoutAKeyInItsArguments(t *testing.T) {
	e, err := engine.Find("codex")
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(e.Args(engine.Job{Metered: &engine.Metered{URL: "http://127.0.0.1:1/v1", Variable: "SECRET"}}), " ")
	want := `-c notify=[] -c model_provider="signalbox" -c model_providers.signalbox.name="Signalbox" ` +
		`-c model_providers.signalbox.wire_api="responses" -c model_providers.signalbox.base_url="http://127.0.0.1:1/v1" ` +
		`-c model_providers.signalbox.env_key="SECRET" exec --json --skip-git-repo-check --color=never -`
	if got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}
