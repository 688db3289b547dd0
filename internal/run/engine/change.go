package engine

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"signalbox/internal/wire"
)

// protected are folders and files in which a change makes something run later that nobody has allowed: hooks, plugins
// and settings of agents, of git, and of editors.
var protected = []string{
	".git", ".claude", ".codex", ".gemini", ".amp", ".opencode", ".pi", ".agents", ".vscode", ".idea", ".mcp.json", "opencode.json",
	"opencode.jsonc",
}

// MayChange says why a tool with these arguments may not change the file that they name, "" if it may: what it is has
// to be in the folder, with links resolved, and not be protected. Tools that name no file may not.
func MayChange(folder string, arguments []byte) string {
	members, err := wire.Members(arguments)
	if err != nil {
		return "its arguments cannot be read"
	}
	var paths []string
	for _, name := range []string{"path", "file_path", "filePath"} {
		var path string
		if members[name] != nil && wire.UnmarshalPart(members[name], &path) == nil {
			paths = append(paths, path)
		}
	}
	if len(paths) == 0 {
		return "it does not name the file that it changes"
	}
	root, err := filepath.EvalSymlinks(folder)
	if err != nil {
		return "the folder of the run is gone"
	}
	for _, path := range paths {
		if why := within(root, path); why != "" {
			return why
		}
	}
	return ""
}

// within says why a path is not one in the folder, "" if it is.
func within(root, path string) string {
	if !filepath.IsAbs(path) {
		path = filepath.Join(root, path)
	}
	resolved, err := resolve(filepath.Clean(path))
	inside, ok := strings.CutPrefix(resolved, strings.TrimSuffix(root, "/")+"/")
	if err != nil || !ok {
		return fmt.Sprintf("%.200s is not in the folder of the run", path)
	}
	for part := range strings.SplitSeq(inside, "/") {
		if slices.Contains(protected, strings.ToLower(part)) {
			return fmt.Sprintf("a change of %s could make something run that nobody has allowed", part)
		}
	}
	return ""
}

// resolve resolves the links of a path of which the end may not be there yet.
func resolve(path string) (string, error) {
	resolved, err := filepath.EvalSymlinks(path)
	if err == nil || !os.IsNotExist(err) {
		return resolved, err
	}
	if _, err := os.Lstat(path); err == nil { // a link to what is not there: it would be made where the link leads
		return "", os.ErrNotExist
	}
	parent := filepath.Dir(path)
	if parent == path {
		return "", err
	}
	if parent, err = resolve(parent); err != nil {
		return "", err
	}
	return filepath.Join(parent, filepath.Base(path)), nil
}
