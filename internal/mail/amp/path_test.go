package amp

import "testing"

func TestAPathMayHaveAnyPrefix(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"/v1/route": "/v1/route", "/api/v1/route": "/v1/route", "/api/v1/v1/messages/pending": "/v1/messages/pending",
		"/route": "/v1/route", "/v1/v1/inbox": "/v1/inbox",
		"/api/organization": "/v1/organization", "/openapi.json": "/openapi.json", "/v1/openapi.json": "/v1/openapi.json",
		"/v1/proxy/messages":                             "/v1/proxy/messages",
		"/api/v1/as/aimaestro.local/v1/messages/pending": "/v1/messages/pending",
		"/api/v1/as/aimaestro.local/route":               "/v1/route", "/as/aimaestro.local": "/as/aimaestro.local",
		"/ops/agents": "/ops/agents", "/amp/messages": "/amp/messages", "/": "/", "/v1": "/v1", "/api/v1/": "/api/v1/",
		"/v1/agents/a%2fb": "/v1/agents/a%2fb", "/healthz": "/healthz",
	} {
		if got := CanonicalPath(in); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

func TestAPathMayNameADomain(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"/api/v1/as/aimaestro.local/v1/inbox": "aimaestro.local", "/as/a.example/messages": "a.example", "/v1/inbox": "",
		"/v1/agents/as/b": "", "/v1/as": "",
	} {
		if got := SpokenDomain(in); got != want {
			t.Errorf("%s: %q, want %q", in, got, want)
		}
	}
}
