package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"signalbox/internal/run/engine"
	runprocess "signalbox/internal/run/process"
	"signalbox/internal/run/runtest"
	"signalbox/internal/server"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

// canary stands in every secret of the server, and in nothing else.
const canary = "canary"

// secretSettings are all secrets of a server as its environment has them, with what they need beside them.
func secretSettings(t *testing.T) (env []string) {
	t.Helper()
	nowhere := "http://127.0.0.1:1/" + canary
	values := map[string]string{
		"db": storetest.Postgres(t) + "&application_name=" + canary, "notify.ntfy.url": nowhere, "notify.webhook": nowhere,
		"notify.slack.webhook": nowhere, "notify.email.smtp": "smtp://user:" + canary + "@127.0.0.1:1",
		"mail.mesh.secrets": "", "notify.slack.token": "xoxb-" + canary, "notify.slack.app_token": "xapp-" + canary,
		"notify.telegram.token": "4711:" + canary,
	}
	for _, s := range server.Settings {
		if !s.Secret {
			continue
		}
		value, special := values[s.Key]
		if !special {
			value = canary
		}
		env = append(env, s.Env()+"="+value)
	}
	return append(env, "SIGNALBOX_NOTIFY_TELEGRAM_API=http://127.0.0.1:1", "SIGNALBOX_NOTIFY_SLACK_API=http://127.0.0.1:1",
		"SIGNALBOX_NOTIFY_TELEGRAM_CHAT=-1001", "SIGNALBOX_NOTIFY_SLACK_CHANNEL=C024BE91L",
		"SIGNALBOX_NOTIFY_EMAIL_FROM=a@example.com", "SIGNALBOX_NOTIFY_EMAIL_TO=b@example.com",
		"SIGNALBOX_TOKEN="+canary, "SIGNALBOX_KEY="+canary, "PGPASSWORD="+canary, "AWS_SECRET_ACCESS_KEY="+canary,
		"SOMETHING_OF_THE_SERVICE="+canary)
}

// TestALaunchedAgentHasNothingOfTheServersEnvironment but what is on its engine's list, and neither have its
// hooks, whatever the server was started with.
func TestALaunchedAgentHasNothingOfTheServersEnvironment(t *testing.T) {
	t.Parallel()
	folder, dir, hold := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "go")
	stream := []byte(strings.Replace(runInit, "T-1", "T-"+runtest.Now, 1) + fmt.Sprintf(runTool, "a") + runResult)
	plain, asks := runtest.CLI{Stdout: stream, Hold: hold}, runtest.CLI{Stdout: stream, Ask: "deploy it"}
	var config strings.Builder
	fmt.Fprintf(&config, "runs:\n  folders: [%s]\n", folder)
	for _, name := range engine.Names() {
		cli := plain
		if e, _ := engine.Find(name); e.MaySupervise() == nil {
			cli = asks
		}
		fmt.Fprintf(&config, "  %s: {command: %s, env: [WANTED_*]}\n", name, cli.Write(t))
	}
	configure(t, dir, config.String())
	env := append(secretSettings(t), "WANTED_BY_THE_OPERATOR=yes", "LC_ALL=C.UTF-8")
	for _, own := range []string{"AMP", "ANTHROPIC", "CODEX", "GEMINI", "OPENAI"} {
		env = append(env, own+"_API_KEY=own-"+strings.ToLower(own))
	}
	p := upIn(t, dir, env)
	mustRun(t, dir, "policy", "apply", writeFile(t, hookPolicy))
	own := map[string]string{
		"amp": "own-amp", "claude": "own-anthropic", "codex": "own-openai", "gemini": "own-gemini",
		"opencode": "own-anthropic", "pi": "own-openai",
	}
	for _, name := range engine.Names() {
		e, err := engine.Find(name)
		if err != nil {
			t.Fatal(err)
		}
		supervised := e.MaySupervise() == nil
		begin := func() string {
			status, answer, err := p.call(http.MethodPost, "/runs", fmt.Sprintf(
				`{"engine":%q,"prompt":"go","dir":%q,"budget":{"tokens":100000},"supervised":%t}`, name, folder, supervised))
			if err != nil || status >= 300 {
				t.Fatalf("%s: %d %s %v", name, status, answer, err)
			}
			_, after, _ := strings.Cut(answer, `"id":"`)
			id, _, _ := strings.Cut(after, `"`)
			return id
		}
		id, least := begin(), 1
		if supervised { // the CLI, and its hook, which waits for a person
			least = 2
		}
		var all []string
		testbed.Until(t, "the processes of "+name, func() bool {
			var run struct{ Status string }
			p.get("/runs/"+id, &run)
			if run.Status != "running" {
				id = begin() // on a busy machine a hook may refuse before the server has answered, and the run is over
			}
			all = environments(id)
			return len(all) >= least
		}, p.log)
		for _, env := range all {
			for line := range strings.SplitSeq(env, "\x00") {
				variable, value, _ := strings.Cut(line, "=")
				if strings.Contains(value, canary) || strings.HasPrefix(variable, "SIGNALBOX_") &&
					variable != runprocess.RunVariable && variable != runprocess.DelegationVariable &&
					variable != "SIGNALBOX_TEST_CLI" {
					t.Errorf("%s has %s", name, line)
				}
			}
			if !strings.Contains(env, "WANTED_BY_THE_OPERATOR=yes") || !strings.Contains(env, own[name]) ||
				!strings.Contains(env, "PATH=") || !strings.Contains(env, runprocess.DelegationVariable+"=hof_") || !strings.Contains(env, "LC_ALL=") {
				t.Errorf("%s lacks what it needs: %q", name, env)
			}
		}
		mustRun(t, dir, "runs", "cancel", id)
		testbed.Until(t, "the end of "+name, func() bool { return len(environments(id)) == 0 })
	}
}

// environments are those of the processes of a run.
func environments(id string) (all []string) {
	folders, _ := filepath.Glob("/proc/[0-9]*")
	for _, folder := range folders {
		env, _ := os.ReadFile(filepath.Join(folder, "environ"))
		if slices.Contains(strings.Split(string(env), "\x00"), runprocess.RunVariable+"="+id) {
			all = append(all, string(env))
		}
	}
	return all
}
