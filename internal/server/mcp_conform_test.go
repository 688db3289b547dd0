package server_test

import (
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"signalbox/internal/testbed"
)

// TestMCPConformance runs the public conformance suite of MCP against /mcp. What may fail
// is in a file: scenarios that call for tools, resources or prompts of certain names, which
// only a server made for the suite has. One that passes although it is listed fails, too.
// The suite sends no key, so there is a proxy that adds one and changes nothing else.
func TestMCPConformance(t *testing.T) {
	t.Parallel()
	suite := npmProgram(t, "@modelcontextprotocol/conformance/dist/index.js")
	b := startTools(t)
	server, err := url.Parse(b.url)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(server)
		r.Out.Host = r.In.Host
		r.Out.Header.Set("Authorization", "Bearer "+b.keys["coordinator"])
	}})
	defer proxy.Close()
	out, err := exec.CommandContext(t.Context(), "node", "--require", "./testdata/node18.cjs", suite, "server", "--url",
		proxy.URL+"/mcp", "--suite", "all", "--expected-failures", "testdata/mcp-conformance.yaml").CombinedOutput()
	text := string(out)
	if err != nil || strings.Contains(text, "Unexpected") {
		t.Errorf("%v\n%s", err, text)
	}
	for _, passes := range []string{
		"server-initialize", "ping", "tools-list", "logging-set-level", "resources-list",
		"prompts-list", "dns-rebinding-protection",
	} {
		if !strings.Contains(text, "✓ "+passes+": ") {
			t.Errorf("%s does not pass", passes)
		}
	}
}

// npmProgram is a file of a package that scripts/test-tools has installed.
func npmProgram(t *testing.T, name string) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(cache, "signalbox-test-tools", "node_modules", name)
	if _, err := os.Stat(file); err != nil {
		testbed.Missing(t, "%s is not installed; scripts/test-tools does that: %v", name, err)
	}
	return file
}
