package server_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/server"
	"signalbox/internal/testbed"
)

func TestAFlagBeatsTheEnvironmentBeatsTheFileBeatsTheDefault(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, server.ConfigFile)
	testbed.Write(t, path,
		"listen: 127.0.0.1:1\npublic_url: http://file.example/\nledger:\n  retention: 90d\nlog: {level: warn}\n")
	env := []string{
		"SIGNALBOX_DATA=" + dir, "SIGNALBOX_LISTEN=127.0.0.1:2", "SIGNALBOX_PUBLIC_URL=http://env.example",
		"SIGNALBOX_DB=postgres://u:hunter2@h/d", "SIGNALBOX_LISEN=x", "OTHER=x",
	}
	c, err := server.Load(map[string]string{"listen": "127.0.0.1:3"}, env, "")
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string][2]string{
		"data":             {dir, "SIGNALBOX_DATA"},
		"listen":           {"127.0.0.1:3", "--listen"},
		"public_url":       {"http://env.example", "SIGNALBOX_PUBLIC_URL"},
		"ledger.retention": {"90d", path + ":3"},
		"log.level":        {"warn", path + ":5"},
		"log.format":       {"text", "default"},
		"mail.provider":    {"signalbox.local", "default"},
		"limits.per_agent": {"protocol", "default"},
		"db":               {"[redacted]", "SIGNALBOX_DB"},
	} {
		if got := [2]string{c.Value(key), c.Sources[key]}; want[1] == path+":3" {
			if got[0] != want[0] || !strings.HasPrefix(got[1], path) {
				t.Errorf("%s is %v, want %v", key, got, want)
			}
		} else if got != want {
			t.Errorf("%s is %v, want %v", key, got, want)
		}
	}
	if c.Retention != 90*24*time.Hour {
		t.Errorf("retention is %v", c.Retention)
	}
	if len(c.Warnings) != 1 || !strings.Contains(c.Warnings[0], "SIGNALBOX_LISTEN") {
		t.Errorf("warnings: %q", c.Warnings)
	}
}

func TestAListMayBeWrittenAsOneOrWithCommas(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"webhooks: {allow: [10.0.0.0/8, hooks.internal]}",
		"webhooks:\n  allow: 10.0.0.0/8, hooks.internal\n",
	} {
		dir := t.TempDir()
		testbed.Write(t, filepath.Join(dir, server.ConfigFile), text)
		c, err := server.Load(map[string]string{"data": dir}, nil, "")
		if err != nil || strings.Join(c.Allow, " ") != "10.0.0.0/8 hooks.internal" {
			t.Errorf("%s: %v %v", text, c, err)
		}
	}
	if _, err := server.CheckFile("f", []byte("listen: [a, b]")); !fault.Is(err, fault.InvalidConfig) {
		t.Errorf("a list where one value goes: %v", err)
	}
}

func TestSettingAKeyKeepsTheRestOfTheFile(t *testing.T) {
	t.Parallel()
	before := "# ours\nlisten: 127.0.0.1:1 # loopback\nledger:\n  retention: 90d\n"
	after, err := server.SetInFile("f", []byte(before), "ledger.retention", "30d")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"# ours", "# loopback", "127.0.0.1:1", "retention: 30d"} {
		if !strings.Contains(string(after), want) {
			t.Errorf("%q is missing from:\n%s", want, after)
		}
	}
	fresh, err := server.SetInFile("f", nil, "log.level", "debug")
	if err != nil || !strings.Contains(string(fresh), "level: debug") {
		t.Errorf("into an empty file: %s %v", fresh, err)
	}
	if _, err := server.SetInFile("f", []byte(before), "log.level", "loud"); !fault.Is(err, fault.InvalidConfig) {
		t.Errorf("a bad value: %v", err)
	}
}

func TestBadConfigurationNamesTheKeyAndTheSource(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ key, value, says string }{
		{"listen", "7446", "such as 127.0.0.1:7446"},
		{"listen", "127.0.0.1:99999", "such as 127.0.0.1:7446"},
		{"public_url", "signalbox.example", "such as https://"},
		{"ledger.retention", "-3d", "such as 30d"},
		{"ledger.retention", "3 weeks", "such as 30d"},
		{"log.level", "loud", "debug, info, warn, error"},
		{"mail.provider", "Example.com", "such as agents.example.com"},
		{"mail.provider", "localhost", "such as agents.example.com"},
		{"mail.provider", "a..b", "such as agents.example.com"},
		{"mail.provider", strings.Repeat("long.", 25) + "ab", "at most 126 characters"},
		{"limits.per_agent", "-1", "from 0, for no limit"},
		{"limits.per_agent", "many", "or protocol"},
	} {
		_, err := server.Load(map[string]string{c.key: c.value, "data": t.TempDir()}, nil, "")
		if !fault.Is(err, fault.InvalidConfig) || !strings.Contains(err.Error(), c.says) ||
			!strings.Contains(err.Error(), "--") {
			t.Errorf("%s=%s: %v", c.key, c.value, err)
		}
	}
}
