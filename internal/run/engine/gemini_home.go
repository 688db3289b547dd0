package engine

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"

	"signalbox/internal/fault"
	"signalbox/internal/wire"
)

// geminiAll is a policy that leaves all decisions to our hook. The first rule is the only kind that gemini does not
// narrow for commands of git and redirections; the second is for tools without arguments.
const geminiAll = `[[rule]]
toolName = "*"
argsPattern = "."
allowRedirection = true
decision = "allow"
priority = 999

[[rule]]
toolName = "*"
decision = "allow"
priority = 998
`

// geminiAlone holds a supervised run of any user. Its folder is not trusted, so gemini takes no settings, hooks, servers
// of MCP and variables from there: the hook is that of an extension, which nothing in the folder can switch off. It is
// in a home of this run alone, whose settings are the person's but for what this takes, and which else has links to
// what is the person's, so that logins and sessions stay. Tried with 0.61.0.
func geminiAlone(p Permit, hooks map[string]any) (Permission, error) {
	user := or(os.Getenv("GEMINI_CLI_HOME"), HomeDir())
	home := filepath.Join(p.Dir, "gemini")
	settings, err := geminiSettings(filepath.Join(user, ".gemini", "settings.json"))
	if err != nil {
		return Permission{}, err
	}
	if err := geminiLinks(user, home); err != nil {
		return Permission{}, cannotWrite(err, home)
	}
	const extension = "gemini/.gemini/extensions/signalbox"
	if err := os.MkdirAll(filepath.Join(p.Dir, extension, "hooks"), 0o700); err != nil {
		return Permission{}, cannotWrite(err, home)
	}
	for name, content := range map[string]map[string]any{
		"gemini/.gemini/settings.json":       settings,
		extension + "/gemini-extension.json": {"name": "signalbox", "version": "1.0.0"},
		extension + "/hooks/hooks.json":      {"hooks": hooks},
	} {
		text, err := wire.Marshal(content)
		if err == nil {
			_, err = p.write(name, string(text), 0o600)
		}
		if err != nil {
			return Permission{}, err
		}
	}
	policy, err := p.write("gemini-policy.toml", geminiAll, 0o600)
	return Permission{
		Args: []string{"--approval-mode", "default", "--admin-policy", policy}, Home: home,
		// The second comes before --skip-trust, and the third keeps gemini from beginning anew in a container.
		Env: []string{"GEMINI_CLI_HOME=" + home, "GEMINI_RESTRICTED_MODE=true", "GEMINI_SANDBOX=false"},
	}, err
}

// geminiSettings are the person's, with what a supervised run takes: without the check of folders for trust gemini runs
// in one that is not trusted, files .env are the person's alone, and hooks and extensions are on.
func geminiSettings(file string) (map[string]any, error) {
	settings := map[string]any{}
	text, err := os.ReadFile(file)
	if err == nil {
		err = wire.UnmarshalForeign(withoutComments(text), &settings)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fault.Wrap(err, fault.InvalidRequest, "A supervised run of gemini has your settings, and %s cannot be read.", file)
	}
	if settings == nil { // the file has null
		settings = map[string]any{}
	}
	for name, members := range map[string]map[string]any{
		"security":    {"folderTrust": map[string]any{"enabled": false}, "allowedExtensions": []any{}},
		"advanced":    {"ignoreLocalEnv": true},
		"hooksConfig": {"enabled": true},
	} {
		group, _ := settings[name].(map[string]any)
		if group == nil {
			group = map[string]any{}
		}
		maps.Copy(group, members)
		settings[name] = group
	}
	return settings, nil
}

// geminiLinks fills the home of a run with what is the person's: all but settings and extensions.
func geminiLinks(user, home string) error {
	theirs, ours := filepath.Join(user, ".gemini"), filepath.Join(home, ".gemini")
	for _, dir := range []string{filepath.Join(theirs, "tmp"), ours} { // the first has the sessions
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	entries, err := os.ReadDir(theirs)
	if err != nil {
		return err
	}
	for _, one := range entries {
		if name := one.Name(); name != "settings.json" && name != "extensions" {
			if err := os.Symlink(filepath.Join(theirs, name), filepath.Join(ours, name)); err != nil {
				return err
			}
		}
	}
	// Of a folder that is not trusted, gemini looks for no .gemini/.env.
	for name, places := range map[string][]string{".env": {".gemini/.env", ".env"}, ".agents": {".agents"}} {
		for _, place := range places {
			if _, err := os.Stat(filepath.Join(user, place)); err != nil {
				continue
			}
			if err := os.Symlink(filepath.Join(user, place), filepath.Join(home, name)); err != nil {
				return err
			}
			break
		}
	}
	return nil
}

// withoutComments is JSON without the comments that gemini allows in it. In a text, what looks like one is none.
func withoutComments(text []byte) []byte {
	comments := regexp.MustCompile(`"(?:[^"\\]|\\.)*"|//[^\n]*|(?s:/\*.*?\*/)`)
	return comments.ReplaceAllFunc(text, func(found []byte) []byte {
		if found[0] == '"' {
			return found
		}
		return []byte(" ")
	})
}
