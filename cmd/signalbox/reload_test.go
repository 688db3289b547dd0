package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"signalbox/internal/testbed"
)

// hangUp sends SIGHUP and waits until the log says so much more often what came of it.
func (p *process) hangUp() {
	p.t.Helper()
	count := func() int {
		log := p.log.String()
		return strings.Count(log, "the configuration was reloaded") + strings.Count(log, "the configuration was not reloaded")
	}
	before := count()
	if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		p.t.Fatal(err)
	}
	testbed.Until(p.t, "a reload", func() bool { return count() > before }, p.log)
}

// edit changes the configuration file as an editor does, without telling anybody.
func (p *process) edit(text string) { configure(p.t, p.dir, text) }

// setting is the value of a setting that the running server has.
func (p *process) setting(key string) string {
	p.t.Helper()
	var all struct{ Settings []struct{ Key, Value string } }
	p.get("/ops/settings", &all)
	for _, s := range all.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	p.t.Fatalf("there is no setting %s", key)
	return ""
}

// TestAHangUpReloadsTheConfiguration and does not end the server: what gives nobody power is in force at once, and the
// log says what waits for a restart.
func TestAHangUpReloadsTheConfiguration(t *testing.T) {
	t.Parallel()
	p := up(t, t.TempDir())
	p.hangUp() // without a file
	p.edit("log: {level: debug}\nledger: {retention: 90d}\n")
	p.hangUp()
	for _, want := range []string{
		"a setting was changed and is in force\" key=log.level from=info to=debug",
		"a setting was changed and waits for a restart\" key=ledger.retention from=none to=90d",
	} {
		if !strings.Contains(p.log.String(), want) {
			t.Errorf("the log does not say %s:\n%s", want, p.log)
		}
	}
	if level, keep := p.setting("log.level"), p.setting("ledger.retention"); level != "debug" || keep != "none" {
		t.Errorf("log.level is %s and ledger.retention %s", level, keep)
	}
	p.edit("log: {level: debug, format: json}\nledger: {retention: 90d}\n")
	p.hangUp()
	testbed.Until(t, "a line in JSON", func() bool {
		return strings.Contains(p.log.String(), `"msg":"the configuration was reloaded"`)
	}, p.log)
	out := mustRun(t, p.dir, "ledger", "tail", "--kind", "config.reloaded", "--body")
	if !strings.Contains(out, "log.format") || strings.Contains(out, "90d") {
		t.Errorf("the ledger: %s", out)
	}
	if status, answer, err := p.call("GET", "/readyz", ""); err != nil || status != http.StatusOK {
		t.Errorf("/readyz: %d %s %v", status, answer, err)
	}
	if code := p.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestABadConfigurationChangesNothing: the old one stays whole, and log, status and doctor say why until it is right.
func TestABadConfigurationChangesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	configure(t, dir, "log: {level: info}\n")
	p := up(t, dir)
	for _, bad := range []string{
		"log: {level: debug}\nlimits: {per_agent: many}\n", "log: {level: debug}\nlimit: 1\n", "log: [\n",
		"log: {level: debug}\nnotify: {telegram: {token: 'a:b'}}\n",
	} {
		p.edit(bad)
		p.hangUp()
		if level := p.setting("log.level"); level != "info" {
			t.Errorf("%q: log.level is %s", bad, level)
		}
		says := func(out string) bool {
			return strings.Contains(out, "signalbox.yaml") || strings.Contains(out, "notify.telegram.chat")
		}
		if out := mustRun(t, dir, "status"); !strings.Contains(out, "the configuration was not reloaded") || !says(out) {
			t.Errorf("%q: status does not say it:\n%s", bad, out)
		}
		for _, command := range [][]string{{"doctor"}, {"config", "reload"}} {
			if code, out := run(t, dir, command...); code != 1 || !says(out) {
				t.Errorf("%q: %v: %d %s", bad, command, code, out)
			}
		}
	}
	if !strings.Contains(p.log.String(), "level=ERROR") {
		t.Errorf("no error in the log:\n%s", p.log)
	}
	p.edit("log: {level: debug}\n")
	p.hangUp()
	if out := mustRun(t, dir, "status"); strings.Contains(out, "not reloaded") || p.setting("log.level") != "debug" {
		t.Errorf("after it was put right: %s", out)
	}
}

// TestAChangeThatNobodyConfirmsIsHeldBack: whoever runs as the server's user can write the file and send the signal, an
// agent too. An operator confirms the bytes of the file, and then they are in force.
func TestAChangeThatNobodyConfirmsIsHeldBack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	configure(t, dir, "log: {level: info}\n")
	p := up(t, dir)
	_, answer, err := p.call("POST", "/ops/agents", `{"name":"busy"}`)
	var added struct{ Keys map[string]string }
	if err != nil || json.Unmarshal([]byte(answer), &added) != nil {
		t.Fatal(answer, err)
	}
	signal := func() int {
		status, _, _ := testbed.Call(t, http.DefaultClient, "POST", p.url+"/amp/signal",
			`{"summary":"s","project":"p"}`, map[string]string{"Authorization": "Bearer " + added.Keys["signal"]})
		return status
	}
	p.edit("log: {level: debug}\nlimits: {per_agent: 1}\nwebhooks: {allow: [10.0.0.0/8]}\n")
	p.hangUp()
	level, limit, allow := p.setting("log.level"), p.setting("limits.per_agent"), p.setting("webhooks.allow")
	if level != "debug" || limit == "1" || allow != "" {
		t.Errorf("log.level is %s, limits.per_agent %s and webhooks.allow %q", level, limit, allow)
	}
	if code, out := run(t, dir, "doctor"); code != 1 ||
		!strings.Contains(out, "is held back: limits.per_agent, webhooks.allow") {
		t.Errorf("doctor: %d %s", code, out)
	}
	for range 3 {
		if status := signal(); status == http.StatusTooManyRequests {
			t.Fatal("the limit that nobody has confirmed counts")
		}
	}
	out := mustRun(t, dir, "config", "reload")
	if !strings.Contains(out, "limits.per_agent") || !strings.Contains(out, "in force") {
		t.Errorf("config reload: %s", out)
	}
	testbed.Until(t, "the limit to count", func() bool { return signal() == http.StatusTooManyRequests })
	if allow := p.setting("webhooks.allow"); allow != "10.0.0.0/8" {
		t.Errorf("webhooks.allow is %q", allow)
	}
	if out := mustRun(t, dir, "status"); strings.Contains(out, "held back") {
		t.Errorf("status: %s", out)
	}
	// What `config set` reports is confirmed, so a signal is enough.
	if out := mustRun(t, dir, "config", "set", "limits.per_agent", "0"); !strings.Contains(out, "config reload") {
		t.Errorf("config set: %s", out)
	}
	p.hangUp()
	if limit := p.setting("limits.per_agent"); limit != "0" {
		t.Errorf("limits.per_agent is %s", limit)
	}
}

// TestAnotherCertificateIsServedAfterAReload of a file that was named with --config, which is confirmed as such. One
// that cannot be read stops the whole reload.
func TestAnotherCertificateIsServedAfterAReload(t *testing.T) {
	t.Parallel()
	first, second := t.TempDir(), t.TempDir()
	old, renewed := testbed.SelfSigned(t, first, "127.0.0.1", 1), testbed.SelfSigned(t, second, "127.0.0.1", 2)
	named := filepath.Join(t.TempDir(), "named.yaml")
	write := func(dir, level string) {
		testbed.Write(t, named, "log: {level: "+level+"}\ntls: {cert: "+dir+"/cert.pem, key: "+dir+"/key.pem}\n")
	}
	write(first, "info")
	p := up(t, t.TempDir(), "--config", named)
	serves := func(pool *x509.CertPool) bool {
		trusts := &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
		conn, err := tls.Dial("tcp", strings.TrimPrefix(p.url, "https://"), trusts)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	}
	reload := func(args ...string) (code int, out string) {
		cmd := exec.CommandContext(testbed.Context(t), binary, append([]string{"config", "reload"}, args...)...)
		cmd.Env = append(cleanEnv(), "SIGNALBOX_DATA="+p.dir, "SSL_CERT_FILE="+filepath.Join(first, "cert.pem"))
		text, _ := cmd.CombinedOutput()
		return cmd.ProcessState.ExitCode(), string(text)
	}
	write(second, "debug")
	p.hangUp()
	if !serves(old) || serves(renewed) {
		t.Error("a certificate that nobody has confirmed is served")
	}
	write(t.TempDir(), "info")
	code, out := reload("--config", named)
	if code != 1 || !strings.Contains(out, "Cannot load the certificate") || !serves(old) {
		t.Errorf("a certificate that is not there: %d %s", code, out)
	}
	write(second, "info")
	if code, out := reload(); code != 1 || !strings.Contains(out, "is not the one that you confirm") {
		t.Errorf("no file, where the server reads one: %d %s", code, out)
	}
	configure(t, p.dir, "log: {level: warn}\n")
	if code, out := reload(); code != 1 || !strings.Contains(out, "is not the one that you confirm") {
		t.Errorf("another file that the server does not read: %d %s", code, out)
	}
	if code, out := reload("--config", named); code != 0 || !serves(renewed) || serves(old) {
		t.Errorf("the other certificate: %d %s", code, out)
	}
}
