package look

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"signalbox/internal/task/amp"
	"signalbox/internal/task/git"
)

// checkForbidden is the name of the check of forbidden_actions.
const checkForbidden = "forbidden"

// fixes measures what the reviewer has fixed by itself: it is on top of what was reviewed, every changed file
// is named, each with fewer than maxFix lines of text.
func (l *look) fixes(v *amp.Verdict, pin, head string) error {
	const at, expected = "/payload/direct_fixes",
		"every changed file listed, each with fewer than 5 changed lines; otherwise the decision rejected"
	if head == pin || head == "" || pin == "" {
		l.wrong("fixes", amp.FixScope, at, "Nothing was committed since the result, so nothing is fixed.",
			"the fixes as commits on the branch; or the decision approved")
		return nil
	}
	files, why, err := l.smallFix(pin, head)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if why == "" && !slices.ContainsFunc(v.Fixes, func(f amp.Fix) bool { return f.File == name }) {
			why = fmt.Sprintf("Git says that %.200q was changed, and no fix names it.", name)
		}
	}
	if why != "" {
		l.wrong("fixes", amp.FixScope, at, why, expected)
		return nil
	}
	l.check("head", amp.Verified, "")
	l.check("fixes", amp.Verified, "")
	l.seen.Commit, l.facts.Head = head, head
	return l.limits(files)
}

// smallFix is what has changed since a commit, and why that is no direct fix, "" if it may be one.
func (l *look) smallFix(pin, head string) (files map[string]git.Change, why string, err error) {
	_, descends, err := l.repo.History(l.ctx, pin, head)
	if err != nil {
		return nil, "", err
	}
	if !descends {
		return nil, fmt.Sprintf("The branch is at %.12s, which does not descend from %.12s, the reviewed commit.", head, pin),
			nil
	}
	if files, err = l.repo.Diff(l.ctx, pin, head); err != nil {
		return nil, "", err
	}
	var total int64
	for _, name := range slices.Sorted(maps.Keys(files)) {
		c := files[name]
		lines := max(c.Added, c.Removed)
		total += lines
		switch {
		case lines >= maxFix:
			why = cmp.Or(why, fmt.Sprintf("Git says that %.200q was changed by %d lines.", name, lines))
		case c.Opaque:
			why = cmp.Or(why, fmt.Sprintf("%.200q is no text, or became another kind of file.", name))
		}
	}
	if total > l.FixTotal {
		why = cmp.Or(why, fmt.Sprintf("Git says that %d lines were changed in all, and a reviewer may change %d.", total,
			l.FixTotal))
	}
	return files, why, nil
}

// maxFix is the number of changed lines that a direct fix must stay below.
const maxFix = 5

// limits checks the changed files against what the dispatch forbids and what it lets be changed. A breach is
// for a person to decide about; the message is taken.
func (l *look) limits(files map[string]git.Change) error {
	if l.about == nil {
		return nil
	}
	d, err := l.Dispatch(l.ctx, l.about.Dispatch)
	if err != nil || d == nil {
		return err
	}
	names := slices.Sorted(maps.Keys(files))
	breach := ""
	if patterns, ok := d.Files(); ok && patterns != nil {
		outside := slices.IndexFunc(names, func(name string) bool {
			return !slices.ContainsFunc(patterns, func(p string) bool { return matchFile(p, name) })
		})
		if outside >= 0 {
			breach = fmt.Sprintf("%.200q was changed, and x_files of the dispatch does not name it.", names[outside])
			l.check("files", amp.Failed, breach)
		} else {
			l.check("files", amp.Verified, "")
		}
	}
	for _, text := range d.Forbidden {
		name, known := breaches(text, files)
		switch {
		case name != "":
			breach = fmt.Sprintf("%.200q was changed, and the dispatch forbids: %.200s", name, text)
			l.check(checkForbidden, amp.Failed, breach)
		case !known:
			l.check(checkForbidden, amp.Unverified, "git cannot tell: "+text)
		default:
			l.check(checkForbidden, amp.Verified, text)
		}
	}
	if breach != "" && l.facts.Finding == nil {
		l.facts.Finding = &amp.Finding{
			Type: "permission_denied", Severity: "warning", Why: "limits", Scope: amp.ScopeTask,
			Description: amp.Clip("The work goes beyond its dispatch. " + breach + " Resume to have it reviewed all the same."),
		}
	}
	return nil
}

// action is an entry of forbidden_actions that names files: what must not be done, and to which.
var action = regexp.MustCompile("(?i)^(?:do not |don't |never |no )?" +
	"(modify|modifying|change|changing|edit|editing|touch|touching|update|write|delete|deleting|remove|removing|add|" +
	"adding|create|creating)(?: to| the| any)*(?: files?| folders?)?(?: in| of| under)? [`'\"]?([^\\s`'\"]+)[`'\"]?\\.?$")

// breaches is the first changed file that breaks an entry of forbidden_actions, "" if none does. known is false for
// what git cannot tell: words that name no file.
func breaches(text string, files map[string]git.Change) (name string, known bool) {
	parts := action.FindStringSubmatch(strings.TrimSpace(text))
	if parts == nil {
		return "", false
	}
	verb, pattern := strings.ToLower(parts[1]), strings.TrimPrefix(strings.TrimPrefix(parts[2], "./"), "/")
	for _, name := range slices.Sorted(maps.Keys(files)) {
		c := files[name]
		does := true
		switch {
		case strings.HasPrefix(verb, "delet"), strings.HasPrefix(verb, "remov"):
			does = c.Deleted
		case strings.HasPrefix(verb, "add"), strings.HasPrefix(verb, "creat"):
			does = c.New
		}
		if does && (matchFile(pattern, name) || matchFile("**/"+pattern, name)) {
			return name, true
		}
	}
	return "", strings.ContainsAny(pattern, "./*")
}

// matchFile reports whether a pattern means a file: its path, a folder that it is in, or a pattern with * for what is
// in one folder and ** for what is below it.
func matchFile(pattern, name string) bool {
	pattern = strings.TrimPrefix(strings.TrimPrefix(pattern, "./"), "/")
	text := regexp.QuoteMeta(strings.TrimSuffix(strings.TrimSuffix(pattern, "/"), "/**"))
	for from, to := range map[string]string{`\*\*/`: `(?:.*/)?`, `\?`: `[^/]`} {
		text = strings.ReplaceAll(text, from, to)
	}
	text = strings.ReplaceAll(strings.ReplaceAll(text, `\*\*`, `.+`), `\*`, `[^/]*`)
	is, err := regexp.Compile("(?s)^(?:" + text + ")(?:/.*)?$")
	return err == nil && is.MatchString(name)
}
