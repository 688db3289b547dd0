package amp

import (
	"strings"
	"unicode"
)

// PlainBranch is a branch without the prefixes that git takes for the same: a task on refs/heads/x is one on x.
func PlainBranch(name string) string {
	for _, prefix := range []string{"refs/heads/", "heads/"} {
		if rest, ok := strings.CutPrefix(name, prefix); ok {
			return rest
		}
	}
	return name
}

// checkBranch refuses names of branches that git would not take, or takes for something else, and those that look like
// another: `git check-ref-format --branch` is the measure, and characters that nobody sees are not taken.
func checkBranch(given string) *Refusal {
	name := PlainBranch(given)
	wrong := func(why string) *Refusal {
		return refuse(LayerSemantic, WrongFormat, "/payload/branch", why).expecting(
			"the name of a feature branch, such as git branch --show-current prints it", "feature/timer-v2")
	}
	switch lower := strings.ToLower(name); {
	case lower == "main" || lower == "master":
		return refuse(LayerSemantic, BranchProtected, "/payload/branch", "This is a protected branch.").expecting(
			"a feature branch", "feature/timer-v2")
	case lower == "head" || name == "@" || strings.HasPrefix(lower, "refs/"):
		return wrong("This names no branch of its own: it is whatever is checked out, or a ref of another kind.")
	case strings.HasPrefix(name, "-") || strings.HasSuffix(name, ".") || strings.Contains(name, "..") ||
		strings.Contains(name, "@{") || strings.ContainsAny(name, " ~^:?*[\\"):
		return wrong("Git takes no branch of this name.")
	}
	for _, part := range strings.Split(name, "/") {
		if part == "" || strings.HasPrefix(part, ".") || strings.HasSuffix(part, ".lock") {
			return wrong("Git takes no branch of this name: a part of it is empty, begins with a dot or ends with .lock.")
		}
	}
	for _, r := range name {
		if r == unicode.ReplacementChar || !unicode.IsGraphic(r) || unicode.IsSpace(r) || unicode.Is(unicode.Cf, r) ||
			unicode.Is(unicode.Mn, r) || unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r) {
			return wrong("The name has characters that nobody sees.")
		}
	}
	return nil
}
