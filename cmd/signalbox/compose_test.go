package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

// composed is deploy/compose.yaml, as far as it is ours.
type composed struct {
	Services map[string]struct {
		Image       string
		User        string
		Environment map[string]string
		Secrets     []string
		Ports       []string
		Networks    []string
		Volumes     []string
		Tmpfs       []string
		ReadOnly    bool     `yaml:"read_only"`
		CapDrop     []string `yaml:"cap_drop"`
		SecurityOpt []string `yaml:"security_opt"`
		Healthcheck struct{ Test []string }
		DependsOn   map[string]struct{ Condition string } `yaml:"depends_on"`
	}
	Networks map[string]struct{ Internal bool }
	Volumes  map[string]struct{}
	Secrets  map[string]struct{ File string }
}

// readCompose reads the file, with the defaults of its variables.
func readCompose(t *testing.T) (c composed, text string) {
	t.Helper()
	text = string(testbed.Read(t, filepath.Join("..", "..", "deploy", "compose.yaml")))
	filled := regexp.MustCompile(`\$\{\w+:-([^}]*)\}`).ReplaceAllString(text, "$1")
	if err := yaml.Unmarshal([]byte(filled), &c); err != nil {
		t.Fatal(err)
	}
	return c, text
}

// TestTheComposeFileHoldsNoSecretAndOpensNothing: every secret is a file, every name that it uses is declared, and only
// this machine reaches the server.
func TestTheComposeFileHoldsNoSecretAndOpensNothing(t *testing.T) {
	t.Parallel()
	c, text := readCompose(t)
	ours, database := c.Services["signalbox"], c.Services["postgres"]
	if len(c.Services) != 2 || !ours.ReadOnly || !slices.Equal(ours.CapDrop, []string{"ALL"}) ||
		ours.DependsOn["postgres"].Condition != "service_healthy" {
		t.Errorf("%+v", ours)
	}
	for name, s := range c.Services {
		if !slices.Contains(s.SecurityOpt, "no-new-privileges:true") || len(s.Healthcheck.Test) < 2 || len(s.Volumes) != 1 {
			t.Errorf("%s: %+v", name, s)
		}
		for _, secret := range s.Secrets {
			if c.Secrets[secret].File == "" {
				t.Errorf("%s: the secret %s is not declared", name, secret)
			}
		}
		for _, volume := range s.Volumes {
			if _, ok := c.Volumes[strings.Split(volume, ":")[0]]; !ok {
				t.Errorf("%s: the volume %s is not declared", name, volume)
			}
		}
		for _, port := range s.Ports {
			if !strings.HasPrefix(port, "127.0.0.1:") {
				t.Errorf("%s: the port %s is open to others", name, port)
			}
		}
		for key, value := range s.Environment {
			secret := strings.Contains(key, "PASSWORD") && !strings.HasSuffix(key, "_FILE")
			if secret || regexp.MustCompile(`:[^/@]+@`).MatchString(value) {
				t.Errorf("%s: %s=%s is a secret", name, key, value)
			}
		}
	}
	if len(database.Ports) != 0 || !slices.Equal(database.Networks, []string{"database"}) ||
		!c.Networks["database"].Internal {
		t.Errorf("the database can be reached: %+v", database)
	}
	for _, s := range c.Secrets {
		if !strings.HasPrefix(s.File, "./secrets/") {
			t.Errorf("%s is not below secrets, which git leaves out", s.File)
		}
	}
	ignored := string(testbed.Read(t, filepath.Join("..", "..", "deploy", ".gitignore")))
	if !strings.Contains(ignored, "/secrets/") {
		t.Error("git would take the secrets")
	}
	version := strings.Fields(mustRun(t, t.TempDir(), "version"))[1]
	if ours.Image != "localhost/signalbox:"+version || !strings.Contains(text, "SIGNALBOX_VERSION:-"+version) {
		t.Errorf("the image is %s, and this is version %s", ours.Image, version)
	}
}

// TestTheServerRunsWithTheEnvironmentOfTheComposeFile, with the password of the database in a file. Another password is
// refused, so it is that one which counts.
func TestTheServerRunsWithTheEnvironmentOfTheComposeFile(t *testing.T) {
	t.Parallel()
	c, _ := readCompose(t)
	cluster := storetest.NewCluster(t)
	db := cluster.Address
	storetest.Load(t, db, "CREATE DATABASE signalbox")
	storetest.Load(t, db, "ALTER USER signalbox PASSWORD 'from-a-file'")
	cluster.AskForPasswords(t)
	at := strings.TrimSuffix(strings.TrimPrefix(db, "postgres://signalbox@"), "/postgres")
	environment := func(password string) (env []string) {
		file := filepath.Join(t.TempDir(), "pgpass")
		local := strings.NewReplacer("postgres:5432", at, "/run/secrets/pgpass", file)
		testbed.Write(t, file, local.Replace("postgres:5432:signalbox:signalbox:"+password+"\n"))
		if err := os.Chmod(file, 0o444); err != nil { // as the file of a secret is
			t.Fatal(err)
		}
		for key, value := range c.Services["signalbox"].Environment {
			env = append(env, key+"="+local.Replace(value))
		}
		return env
	}
	p := upIn(t, t.TempDir(), environment("from-a-file"))
	if strings.Contains(p.log.String(), "is not known") {
		t.Errorf("a variable of the file is not known:\n%s", p.log)
	}
	if out := mustRun(t, p.dir, "status"); !strings.Contains(out, "postgres") {
		t.Errorf("status: %s", out)
	}
	p.stop()
	wrong := exec.CommandContext(testbed.Context(t), binary, "up", "--listen", "127.0.0.1:0", "--data", t.TempDir())
	wrong.Env = append(cleanEnv(), environment("of-somebody-else")...)
	if out, err := wrong.CombinedOutput(); err == nil || strings.Contains(string(out), "of-somebody-else") {
		t.Errorf("another password: %v\n%s", err, out)
	}
}
