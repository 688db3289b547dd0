package amp

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxFilename is the longest name of a file, in bytes: the limit of most file systems.
const maxFilename = 255

var (
	notInFilename = regexp.MustCompile(`[^A-Za-z0-9._-]`)
	// deviceNames are names that Windows takes for a device, with any extension.
	deviceNames = regexp.MustCompile(`(?i)^(con|prn|aux|nul|com[0-9]|lpt[0-9])(\.|$)`)
)

// SafeFilename makes a name that is a plain file name on every system, without folders: ASCII letters,
// digits, dots, hyphens and underscores, at most 255 of them. It hides no file, is no device, and begins
// like no option of a command. A safe name stays as it is.
func SafeFilename(name string) string {
	name = strings.Trim(notInFilename.ReplaceAllString(name, "_"), ".")
	if strings.HasPrefix(name, "-") {
		name = "_" + name[1:]
	}
	if name == "" || deviceNames.MatchString(name) {
		name = "_" + name
	}
	if over := len(name) - maxFilename; over > 0 {
		// The end of a name is kept, since programs go by it.
		end := strings.LastIndexByte(name, '.')
		if end < over || len(name)-end > 32 {
			end = len(name)
		}
		name = strings.TrimRight(name[:end-over]+name[end:], ".")
	}
	return name
}

// ShownFilename reports whether a name can be shown and stored as it is: one line of visible characters,
// without folders, also escaped ones, and no device. Unlike a safe name it may have blanks and letters of
// every language.
func ShownFilename(name string) bool {
	if name == "" || len(name) > maxFilename || !utf8.ValidString(name) || strings.ContainsAny(name, `/\:*?"<>|`) ||
		strings.Trim(name, ". ") != name || name[0] == '-' || deviceNames.MatchString(name) {
		return false
	}
	lower := strings.ToLower(name)
	for _, escape := range []string{"%2f", "%5c", "%00"} {
		if strings.Contains(lower, escape) {
			return false
		}
	}
	for _, c := range name {
		if !unicode.IsPrint(c) || unicode.Is(unicode.Other_Default_Ignorable_Code_Point, c) ||
			unicode.Is(unicode.Variation_Selector, c) {
			return false
		}
	}
	return true
}
