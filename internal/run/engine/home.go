package engine

import (
	"cmp"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

// Folder is where a CLI keeps its own things: a folder, or a single file. In a sandbox the CLI gets a copy of it, or sees
// it as it is without a right to change it, but for what is named here. What a CLI reads there may start programs:
// settings, plugins, hooks. So little is named.
type Folder struct {
	Path string
	// Keep are the folders below it that a run changes: those of its sessions. "." is the folder itself.
	Keep []string
	// Read are what stays as it is in a folder that is kept, and Own what the run has for itself there.
	Read, Own []string
	// Login are files with logins, which a CLI renews while it runs.
	Login []string
}

// Folders are where the engine keeps its own things, for the user with this home.
func (e *Engine) Folders(home string, getenv func(string) string) []Folder {
	in := func(variable string, otherwise ...string) string {
		return cmp.Or(getenv(variable), filepath.Join(append([]string{home}, otherwise...)...))
	}
	data, config := in("XDG_DATA_HOME", ".local", "share"), in("XDG_CONFIG_HOME", ".config")
	switch e.Name {
	case "amp":
		return []Folder{
			{Path: filepath.Join(data, "amp"), Keep: []string{"threads"}, Login: []string{"secrets.json"}},
			{Path: filepath.Join(config, "amp")},
		}
	case "claude":
		at := in("CLAUDE_CONFIG_DIR", ".claude")
		return []Folder{
			{Path: at, Keep: []string{"projects", "todos", "tasks", "file-history"}, Login: []string{".credentials.json"}},
			{Path: filepath.Join(home, ".claude.json")},
		}
	case "codex":
		return []Folder{
			{Path: in("CODEX_HOME", ".codex"), Keep: []string{"sessions", "archived_sessions"}, Login: []string{"auth.json"}},
		}
	case "gemini":
		return []Folder{{
			Path: filepath.Join(cmp.Or(getenv("GEMINI_CLI_HOME"), home), ".gemini"), Keep: []string{"tmp"},
			Read: []string{"tmp/bin"}, Own: []string{"history"}, Login: []string{"oauth_creds.json", "google_accounts.json", "projects.json"},
		}}
	case "opencode":
		return []Folder{
			{ // its sessions are a database, beside which there are other files while it is open
				Path: filepath.Join(data, "opencode"), Keep: []string{"."}, Read: []string{"bin"},
				Own: []string{"snapshot", "log", "worktree", "repos"}, Login: []string{"auth.json"},
			},
			{Path: filepath.Join(config, "opencode")},
			{Path: filepath.Join(in("XDG_CACHE_HOME", ".cache"), "opencode")},
			{Path: filepath.Join(in("XDG_STATE_HOME", ".local", "state"), "opencode")},
		}
	case "pi":
		return []Folder{{Path: filepath.Dir(piSessions()), Keep: []string{"sessions"}, Login: []string{"auth.json"}}}
	}
	return nil
}

// providerHosts are where the models of providers are called.
var providerHosts = []string{"api.anthropic.com", "api.openai.com", "generativelanguage.googleapis.com", "openrouter.ai"}

// hosts are those that each engine cannot do without: where its models are, and where it renews its login.
var hosts = map[string][]string{
	"amp":      {"ampcode.com"},
	"claude":   {"api.anthropic.com", "platform.claude.com", "console.anthropic.com"},
	"codex":    {"api.openai.com", "chatgpt.com", "auth.openai.com"},
	"gemini":   {"generativelanguage.googleapis.com", "cloudcode-pa.googleapis.com", "oauth2.googleapis.com"},
	"opencode": append([]string{"opencode.ai", "models.dev"}, providerHosts...),
	"pi":       providerHosts,
}

// bases are the variables that lead an engine's calls of its models elsewhere.
var bases = map[string]string{
	"amp": "AMP_URL", "claude": "ANTHROPIC_BASE_URL", "codex": "OPENAI_BASE_URL", "gemini": "GOOGLE_GEMINI_BASE_URL",
}

// Hosts are where a sandboxed engine may call beside what is listed for it, as HOST or HOST:PORT: its provider's, or the
// one that its environment leads it to. They are none if its calls of models go through the proxy.
func (e *Engine) Hosts(getenv func(string) string, metered bool) []string {
	if metered {
		return nil
	}
	at, err := url.Parse(getenv(bases[e.Name]))
	if err != nil || at.Host == "" {
		return hosts[e.Name]
	}
	port := at.Port()
	if port == "" {
		port = map[string]string{"http": "80"}[at.Scheme]
	}
	if port == "" {
		port = "443"
	}
	host := at.Hostname()
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return []string{host + ":" + port}
}

// HomeDir is the home of this user.
func HomeDir() string {
	home, _ := os.UserHomeDir()
	return home
}
