package facts

import "strings"

// looksLikePatch reports whether a text is a patch: that of Codex, or a unified diff.
func looksLikePatch(text string) bool {
	return strings.Contains(text, "*** Begin Patch") || strings.Contains(text, "*** Update File: ") ||
		(strings.Contains(text, "\n+++ ") && strings.Contains(text, "\n@@")) ||
		(strings.HasPrefix(text, "--- ") && strings.Contains(text, "\n+++ "))
}

// addPatch notes the files that a patch changes, creates and deletes.
func (f *Facts) addPatch(text string, base Base) {
	old := ""
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		for _, head := range []struct {
			prefix string
			use    use
		}{
			{"*** Add File: ", writes},
			{"*** Update File: ", writes},
			{"*** Move to: ", writes},
			{"*** Delete File: ", deletes},
			{"rename from ", deletes},
			{"rename to ", writes},
		} {
			if name, ok := strings.CutPrefix(line, head.prefix); ok {
				f.add(head.use, base.Abs(strings.TrimSpace(name)))
			}
		}
		if name, ok := strings.CutPrefix(line, "--- "); ok {
			old = diffName(name)
		}
		if name, ok := strings.CutPrefix(line, "+++ "); ok {
			if name = diffName(name); name != "/dev/null" {
				f.add(writes, base.Abs(name))
			} else if old != "" {
				f.add(deletes, base.Abs(old))
			}
		}
	}
}

// diffName is the file in a header of a diff, without the folder a/ or b/ and the time.
func diffName(text string) string {
	name, _, _ := strings.Cut(text, "\t")
	name = strings.Trim(strings.TrimSpace(name), `"`)
	if len(name) > 2 && (name[:2] == "a/" || name[:2] == "b/") {
		return name[2:]
	}
	return name
}
