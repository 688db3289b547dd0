package engine

import (
	"bufio"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"signalbox/internal/fault"
	"signalbox/internal/wire"
)

// piID is how long a whole id of pi is, a UUID.
const piID = 36

// wholePi is the whole id for what a person gives as a session of pi. pi takes the beginning of an id for the session
// that was used last of those that it fits, and ids are ordered by time: sessions that began within a minute have the
// same first eight digits. What fits no session is left to pi, which says so itself.
func wholePi(j Job) (string, error) {
	token := j.Resume.Value
	if strings.ContainsAny(token, `/\`) || strings.HasSuffix(token, ".jsonl") || len(token) >= piID {
		return token, nil
	}
	sessions := piSessions()
	// As pi has it: the folder's own first.
	fit := piFit(filepath.Join(sessions, piFolder(j.Dir)), token)
	if len(fit) == 0 {
		folders, _ := os.ReadDir(sessions) // pi has never run
		for _, f := range folders {
			fit = append(fit, piFit(filepath.Join(sessions, f.Name()), token)...)
		}
	}
	switch len(fit) {
	case 0:
		return token, nil
	case 1:
		return fit[0], nil
	}
	const most = 10
	more := ""
	if len(fit) > most {
		fit, more = fit[:most], ", …"
	}
	return "", fault.New(fault.InvalidRequest,
		"%.80q is the beginning of several sessions of pi. Give one of their whole ids: %s.", token,
		strings.Join(fit, ", ")+more).About("resume")
}

// piSessions is the folder in which pi keeps sessions.
func piSessions() string {
	dir := os.Getenv("PI_CODING_AGENT_DIR")
	home, _ := os.UserHomeDir()
	if rest, ok := strings.CutPrefix(dir, "~"); ok {
		dir = home + rest
	}
	if dir == "" {
		dir = filepath.Join(home, ".pi", "agent")
	}
	return filepath.Join(dir, "sessions")
}

// piFolder is the name of the folder in which pi keeps the sessions of a folder.
func piFolder(dir string) string {
	return "--" + strings.NewReplacer("/", "-", `\`, "-", ":", "-").Replace(strings.TrimLeft(dir, `/\`)) + "--"
}

// piFit are the ids of the sessions in a folder that begin with the token, sorted.
func piFit(folder, token string) (ids []string) {
	files, _ := filepath.Glob(filepath.Join(quoteGlob(folder), "*.jsonl"))
	for _, name := range files {
		if session := piHeader(name); strings.HasPrefix(session, token) && !slices.Contains(ids, session) {
			ids = append(ids, session)
		}
	}
	slices.Sort(ids)
	return ids
}

// quoteGlob is a path that a pattern finds as it is written.
func quoteGlob(path string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(path)
}

// piHeader is the id in the first line of a session's file, "" if there is none.
func piHeader(name string) string {
	f, err := os.Open(name)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	line, _ := bufio.NewReader(io.LimitReader(f, 64<<10)).ReadBytes('\n') // the last line needs no end
	var header struct {
		Type string `json:"type"`
		ID   string `json:"id"`
	}
	if wire.UnmarshalForeign(line, &header) != nil || header.Type != "session" {
		return ""
	}
	return header.ID
}
