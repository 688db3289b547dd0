package facts

import (
	"path"
	"slices"
	"strings"
)

// Base is what the paths of a call are relative to: the working directory, empty if it is not
// known, and the home folder, "~" if it is not known.
type Base struct{ CWD, Home string }

// BaseOf is the base of a working directory. Where the home folders of a system lie is known,
// so the working directory often tells the home folder.
func BaseOf(cwd string) Base {
	if cwd != "" {
		cwd = path.Clean(cwd)
	}
	return Base{cwd, homeOf(cwd)}
}

// homeOf is the home folder that a path lies in, "~" if none is known.
func homeOf(p string) string {
	if p == "/root" || strings.HasPrefix(p, "/root/") {
		return "/root"
	}
	for _, homes := range []string{"/home/", "/Users/"} {
		if rest, ok := strings.CutPrefix(p, homes); ok && rest != "" {
			name, _, _ := strings.Cut(rest, "/")
			return homes + name
		}
	}
	return "~"
}

// Abs is a path as facts have it: absolute and clean where that is possible.
func (b Base) Abs(p string) string {
	if strings.HasPrefix(p, "**/") { // a folder of a rule that may lie anywhere
		return p
	}
	if i := strings.IndexByte(p, '$'); i >= 0 && !isTemporary(p) { // known at run time only, from there on
		folder, rest := "", p
		if i = strings.LastIndexByte(p[:i], '/'); i >= 0 {
			folder, rest = b.Abs(p[:i+1]), p[i+1:]
		} else if p[0] != '$' && b.CWD != "" {
			folder = b.CWD
		}
		if folder == "" {
			return rest
		}
		return strings.TrimSuffix(folder, "/") + "/" + rest
	}
	switch {
	case p == "":
		return ""
	case p == "~" || strings.HasPrefix(p, "~/"):
		return path.Clean(b.Home + p[1:])
	case p[0] == '~': // the home folder of another user
		return path.Clean("/home/" + p[1:])
	case p[0] == '$':
		return path.Clean(p)
	case p[0] != '/' && b.CWD == "":
		return path.Clean(p)
	case p[0] != '/':
		p = b.CWD + "/" + p
	}
	return b.throughProc(path.Clean(p))
}

// isTemporary reports whether a path is certain to lie in the folder for temporary files, which is
// in a variable.
func isTemporary(p string) bool {
	rest, ok := strings.CutPrefix(p, "$TMPDIR")
	return ok && (rest == "" || rest[0] == '/') && !strings.Contains(rest, "$") && !strings.Contains(rest, "..")
}

// throughProc replaces the links of /proc that lead to the root and the working directory of a process.
func (b Base) throughProc(p string) string {
	rest, ok := strings.CutPrefix(p, "/proc/")
	if !ok {
		return p
	}
	_, rest, _ = strings.Cut(rest, "/") // self, or the number of a process
	switch link, inside, _ := strings.Cut(rest, "/"); link {
	case "root":
		return path.Clean("/" + inside)
	case "cwd":
		return b.Abs("./" + inside)
	}
	return p
}

// place are the folders that a rule names, in the form of the paths that are compared with them. The
// names that depend on the call are "~", "$TMPDIR" and everything relative.
func (b Base) place(name string) []string {
	rest, ofHome := strings.CutPrefix(name, "~")
	switch {
	case name == "$TMPDIR":
		return slices.DeleteFunc(slices.Clone(temporary), func(folder string) bool { return within(b.CWD, folder) })
	case ofHome && b.Home == "~":
		return []string{"~" + rest, "/root" + rest, "/home/*" + rest, "/Users/*" + rest}
	}
	return []string{b.Abs(name)}
}

// temporary are the folders for temporary files.
var temporary = []string{"/tmp", "/var/tmp", "/private/tmp", "/var/folders", "$TMPDIR"}

// isScratch reports whether a path lies in a folder for temporary files, but not in one that the working
// directory lies in: what is there is not scratch but the work.
func (b Base) isScratch(p string) bool {
	return slices.ContainsFunc(temporary, func(folder string) bool { return within(p, folder) && !within(b.CWD, folder) })
}

// lies reports whether a path lies in a place that is not in a home folder of somebody. It is Abs and
// within, but makes no text where it is compared with a file of the working directory.
func (b Base) lies(p, name string) bool {
	if b.CWD == "" || b.CWD == "/" || strings.HasPrefix(b.CWD, "/proc/") || path.Clean(name) != name ||
		strings.IndexByte("/~$*", name[0]) >= 0 || strings.HasPrefix(name, "..") {
		return within(p, b.Abs(name))
	}
	rest, ok := strings.CutPrefix(p, b.CWD)
	return ok && (rest == "" || rest[0] == '/') && (name == "." || within(rest, name))
}

// Within reports whether one of the paths lies in one of the places, or is one.
func (b Base) Within(paths []string, places ...string) bool {
	for _, name := range places {
		inHome, ofHome := strings.CutPrefix(name, "~")
		for _, p := range paths {
			switch {
			case ofHome && b.Home == "~": // whosever it is
				if rest, ok := fromHome(p); ok && (inHome == "" || within(rest, inHome)) {
					return true
				}
			case name == "$TMPDIR":
				if b.isScratch(p) {
					return true
				}
			case b.lies(p, name):
				return true
			}
		}
	}
	return false
}

// fromHome is the part of a path after a home folder.
func fromHome(p string) (rest string, ok bool) {
	if rest, ok = strings.CutPrefix(p, "~"); ok {
		return rest, rest == "" || rest[0] == '/'
	}
	home := homeOf(p)
	return strings.TrimPrefix(p, home), home != "~"
}

// Covers reports whether deleting one of the paths deletes one of the places: it is the place,
// a folder around it, or a pattern that matches one of the two.
func (b Base) Covers(paths []string, places ...string) bool {
	for _, p := range paths {
		for _, name := range places {
			if slices.ContainsFunc(b.place(name), func(place string) bool { return covers(p, place) }) {
				return true
			}
		}
	}
	return false
}

// Outside reports whether one of the paths lies in none of the places, or may lie outside: what a
// shell puts in at run time can lead anywhere. If "." is among them and
// the working directory is not known, an absolute path counts as inside unless it is certain
// that nobody works there: see foreign.
func (b Base) Outside(paths []string, places ...string) bool {
	for _, p := range paths {
		inside := false
		for _, name := range places {
			if strings.Contains(p, "$") && !isTemporary(p) {
				break
			}
			if name == "." && noWorkplace(b.CWD) {
				continue
			}
			inside = inside || b.Within([]string{p}, name) || (name == "." && b.CWD == "" && !b.foreign(p))
		}
		if !inside {
			return true
		}
	}
	return false
}

// noWorkplace reports whether a working directory is one that nobody works in: the root, or a folder of
// the system. An agent that goes there has not made it its own.
func noWorkplace(cwd string) bool {
	return cwd == "/" || slices.ContainsFunc([]string{
		"/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/proc", "/run", "/sbin", "/sys",
	}, func(folder string) bool { return within(cwd, folder) })
}

// foreign reports whether a path cannot lie in a working directory that is not known: folders of
// the system, hidden folders of a home folder, a folder above, and what only a shell knows.
func (b Base) foreign(p string) bool {
	if p == ".." || strings.HasPrefix(p, "../") || strings.HasPrefix(p, "$") || p == "/" {
		return true
	}
	if b.Within([]string{p}, "/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/opt", "/proc", "/run", "/sbin", "/sys",
		"/usr", "/var", "/System", "/Library") {
		return true
	}
	home := homeOf(p)
	if strings.HasPrefix(p, "~") {
		home = "~"
	} else if home == "~" {
		return false
	}
	rest := strings.TrimPrefix(strings.TrimPrefix(p, home), "/")
	return rest == "" || rest[0] == '.'
}

// within reports whether p is the place or lies in it. A component "*" of the place is any name.
func within(p, place string) bool {
	if place == "" || p == "" {
		return false
	}
	if name, ok := strings.CutPrefix(place, "**"); ok { // wherever it lies
		return strings.HasSuffix(p, name) || strings.Contains(p, name+"/") || p == name[1:] ||
			strings.HasPrefix(p, name[1:]+"/")
	}
	if place == "." { // the working directory is not known
		return p[0] != '/' && p[0] != '~' && p[0] != '$' && p != ".." && !strings.HasPrefix(p, "../")
	}
	for place != "" && place != "/" {
		var want, got string
		want, place, _ = strings.Cut(strings.TrimPrefix(place, "/"), "/")
		absolute := strings.HasPrefix(p, "/")
		got, p, _ = strings.Cut(strings.TrimPrefix(p, "/"), "/")
		if got != want && (want != "*" || got == "" || !absolute) {
			return false
		}
		if p != "" {
			p = "/" + p
		}
		if place != "" {
			place = "/" + place
		}
	}
	return true
}

// covers reports whether deleting p, which may be a pattern, deletes the place.
func covers(p, place string) bool {
	if p == place || p == "/" {
		return true
	}
	// Everything in a folder is as much as the folder.
	for folder := p; everything(path.Base(folder)); {
		if folder = path.Dir(folder); folder == place {
			return true
		}
	}
	return coversParts(strings.Split(p, "/"), strings.Split(place, "/"))
}

// coversParts is covers for the names between slashes. The pattern ** is any number of folders.
func coversParts(theirs, ours []string) bool {
	for i, pattern := range theirs {
		if pattern == "**" {
			if i+1 < len(theirs) && theirs[i+1] == "**" { // the same, and many of them would take long
				return coversParts(theirs[i+1:], ours[i:])
			}
			for rest := ours[i:]; !coversParts(theirs[i+1:], rest); rest = rest[1:] {
				if len(rest) == 0 || strings.HasPrefix(rest[0], ".") {
					return false
				}
			}
			return true
		}
		if i >= len(ours) {
			return false
		}
		if pattern == ours[i] || ours[i] == "*" {
			continue
		}
		// A pattern matches a hidden name only if it begins with a dot itself.
		hidden := strings.HasPrefix(ours[i], ".") && !strings.HasPrefix(pattern, ".")
		if matched, err := path.Match(pattern, ours[i]); err != nil || !matched || hidden {
			return false
		}
	}
	return true
}

// everything reports whether a pattern matches every name, or every hidden one.
func everything(pattern string) bool {
	return strings.ContainsAny(pattern, "*?") && strings.Trim(pattern, ".*?") == "" || pattern == "[!.]*"
}

// isStream reports whether a path is a device that keeps nothing, or a stream of the process.
func isStream(p string) bool {
	switch p {
	case "/dev/null", "/dev/zero", "/dev/full", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/tty", "/dev/random",
		"/dev/urandom", "-":
		return true
	}
	return strings.HasPrefix(p, "/dev/fd/") || strings.HasPrefix(p, "/dev/pts/")
}
