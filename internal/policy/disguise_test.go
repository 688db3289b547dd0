package policy_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"mvdan.cc/sh/v3/syntax"
	"pgregory.net/rapid"

	"signalbox/internal/policy"
)

// destructive are commands that the default policy blocks.
var destructive = []string{
	"rm -rf /", "rm -r -f /", "rm / -fr", "rm -rf ~", `rm -rf "$HOME"`, "rm -rf .git", "find / -delete", "rm -rf /*",
	"signalbox gates approve gat_1", "mv .git /tmp/x",
}

// disguise is a way to run a command that leaves its effect the same.
type disguise struct {
	simple bool // it takes a simple command only
	stays  bool // and gives one
	apply  func(t *rapid.T, text string) string
}

func quoted(t *rapid.T, text string) string {
	q, err := syntax.Quote(text, syntax.LangBash)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func before(prefix string) disguise {
	return disguise{true, true, func(_ *rapid.T, text string) string { return prefix + " " + text }}
}

func around(begin, end string) disguise {
	return disguise{false, false, func(_ *rapid.T, text string) string { return begin + text + end }}
}

func inside(begin, end string) disguise {
	return disguise{false, true, func(t *rapid.T, text string) string { return begin + quoted(t, text) + end }}
}

var disguises = []disguise{
	before("sudo"),
	before("sudo -n -u root"),
	before("env"),
	before("env -i A=b"),
	before("nohup"),
	before("timeout 5"),
	before("command"),
	before("nice -n 5"),
	before("setsid"),
	before("stdbuf -oL"),
	before("A=b"),
	before("exec"),
	before("time"),
	before("busybox"),
	before("ionice -c3"),
	before("sudo env X=1 nohup"),
	inside("sh -c ", ""),
	inside("bash -lc ", ""),
	inside("/bin/bash -c ", ""),
	inside("zsh -c ", " x y"),
	inside("eval ", ""),
	inside("su -c ", ""),
	inside("env -S ", ""),
	inside("bash <<< ", ""),
	inside("trap ", " EXIT"),
	{false, false, func(t *rapid.T, text string) string { return "echo " + quoted(t, text) + " | sh" }},
	{false, false, func(t *rapid.T, text string) string { return "printf %s " + quoted(t, text) + " | bash -s" }},
	{false, false, func(t *rapid.T, text string) string { return "x=" + quoted(t, text) + `; eval "$x"` }},
	{false, false, func(t *rapid.T, text string) string { return "x=" + quoted(t, text) + `; bash -c "$x"` }},
	{false, false, func(_ *rapid.T, text string) string { return "bash <<'EOF'\n" + text + "\nEOF" }},
	{false, false, func(_ *rapid.T, text string) string {
		return "echo " + base64.StdEncoding.EncodeToString([]byte(text)) + " | base64 -d | sh"
	}},
	{false, false, func(t *rapid.T, text string) string { return "echo " + quoted(t, text) + " > /tmp/x; sh /tmp/x" }},
	around("( ", " )"),
	around("{ ", "; }"),
	around("true && ", ""),
	around("false || ", ""),
	around("", "; true"),
	around(
		"",
		" &",
	),
	around("if true; then ", "; fi"),
	around("for i in 1; do ", "; done"),
	around("while :; do ", "; done"),
	around(
		"f() { ",
		"; }; f",
	),
	around("echo $( ", " )"),
	around("cat <( ", " )"),
	around("cd /srv/app; ", ""),
	around("! ", ""),
	around("case x in x) ", ";; esac"),
	around("ls\n", "\nls"),
	around("ls | ", ""),
	around("", " | cat"),
	{true, true, respell},
	{true, true, func(_ *rapid.T, text string) string { return strings.ReplaceAll(text, " ", "  ") }},
	{true, true, func(_ *rapid.T, text string) string { return strings.ReplaceAll(text, " ", " \\\n ") }},
	{true, true, func(_ *rapid.T, text string) string { return text + " 2>/dev/null" }},
}

// respell quotes the name of a command in one of the ways that change nothing.
func respell(t *rapid.T, text string) string {
	name, rest, _ := strings.Cut(text, " ")
	if strings.ContainsAny(name, `'"\=$`) || len(name) < 2 {
		return text
	}
	forms := []string{
		`\` + name, name[:1] + "''" + name[1:], "'" + name[:1] + "'" + name[1:], `"` + name + `"`, name[:1] + `\` + name[1:],
		fmt.Sprintf(`$'\x%02x'%s`, name[0], name[1:]),
	}
	return rapid.SampledFrom(forms).Draw(t, "form") + " " + rest
}

// TestNoDisguiseTurnsABlockIntoAnAllow wraps, quotes and reorders commands that are blocked. What comes
// of it may need a person, and is never allowed.
func TestNoDisguiseTurnsABlockIntoAnAllow(t *testing.T) {
	p := parse(t, string(policy.Default()))
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SampledFrom(destructive).Draw(t, "command")
		simple := true
		for range rapid.IntRange(0, 6).Draw(t, "layers") {
			d := rapid.SampledFrom(disguises).Draw(t, "disguise")
			if d.simple && !simple {
				continue
			}
			text, simple = d.apply(t, text), simple && d.stays || d.stays && !d.simple
		}
		e := policy.Event{
			Point: policy.OnAction, Tool: "Bash", CWD: "/srv/app", Arguments: map[string]any{"command": text},
		}
		if v := p.Decide(t.Context(), policy.Input{Event: &e}); v.Action == policy.Allow {
			t.Fatalf("%q is allowed by %s: %+v", text, v.Rule, e.Facts())
		}
	})
}
