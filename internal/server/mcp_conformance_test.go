package server_test

import (
	"net/http/httputil"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"signalbox/internal/testbed"
)

// needFixtures are the scenarios of the conformance suite of MCP that cannot pass, with the reason: each calls for a
// tool, a prompt or a resource of a certain name, which only a server made for the suite has. All others must pass.
var needFixtures = map[string]string{
	"completion-complete":          "the prompt test_prompt_with_arguments",
	"elicitation-sep1034-defaults": "the tool test_elicitation_sep1034_defaults",
	"elicitation-sep1330-enums":    "the tool test_elicitation_sep1330_enums",
	"json-schema-2020-12":          "the tool json_schema_2020_12_tool",

	"prompts-get-embedded-resource": "the prompt test_prompt_with_embedded_resource",
	"prompts-get-simple":            "the prompt test_simple_prompt",
	"prompts-get-with-args":         "the prompt test_prompt_with_arguments",
	"prompts-get-with-image":        "the prompt test_prompt_with_image",

	"resources-read-binary":    "the resource test://static-binary",
	"resources-read-text":      "the resource test://static-text",
	"resources-subscribe":      "the resource test://watched-resource",
	"resources-templates-read": "the resource test://template/{id}/data",
	"resources-unsubscribe":    "the resource test://watched-resource",

	"server-sse-polling": "the tool test_reconnection; TestAnAnswerIsResumed does the same with a tool of ours",

	"tools-call-audio":             "the tool test_audio_content",
	"tools-call-elicitation":       "the tool test_elicitation",
	"tools-call-embedded-resource": "the tool test_embedded_resource",
	"tools-call-error":             "the tool test_error_handling",
	"tools-call-image":             "the tool test_image_content",
	"tools-call-mixed-content":     "the tool test_multiple_content_types",
	"tools-call-sampling":          "the tool test_sampling",
	"tools-call-simple-text":       "the tool test_simple_text",
	"tools-call-with-logging":      "the tool test_tool_with_logging",
	"tools-call-with-progress":     "the tool test_tool_with_progress; TestALongWaitSaysSo does the same with ours",
}

// TestMCPConformance runs the public conformance suite of MCP against /mcp. One that passes although it is listed
// fails, too. The suite sends no key, so there is a proxy that adds one and changes nothing else.
func TestMCPConformance(t *testing.T) {
	t.Parallel()
	suite := npmProgram(t, "@modelcontextprotocol/conformance/dist/index.js")
	b := startTools(t)
	server, err := url.Parse(b.url)
	if err != nil {
		t.Fatal(err)
	}
	proxy := testbed.ServeHTTP(t, &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(server)
		r.Out.Host = r.In.Host
		r.Out.Header.Set("Authorization", "Bearer "+b.keys["coordinator"])
	}})
	expected := "server:\n"
	for name := range needFixtures {
		expected += "  - " + name + "\n"
	}
	file := filepath.Join(t.TempDir(), "expected.yaml")
	testbed.Write(t, file, expected)
	out, err := exec.CommandContext(t.Context(), "node", "--require", "./testdata/node18.cjs", suite, "server", "--url",
		proxy+"/mcp", "--suite", "all", "--expected-failures", file).CombinedOutput()
	text := string(out)
	if err != nil || strings.Contains(text, "Unexpected") {
		t.Errorf("%v\n%s", err, text)
	}
	for _, passes := range []string{
		"server-initialize", "ping", "tools-list", "logging-set-level", "resources-list",
		"prompts-list", "dns-rebinding-protection", "server-sse-multiple-streams",
	} {
		if !strings.Contains(text, "✓ "+passes+": ") {
			t.Errorf("%s does not pass", passes)
		}
	}
}
