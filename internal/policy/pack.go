package policy

import (
	"embed"
	"strings"
)

//go:embed packs
var packFiles embed.FS

// Pack is a policy to begin with. Its source and its tests are made of parts: what no pack allows
// is the same in all of them.
type Pack struct {
	Name    string
	Summary string
}

// Packs are the packs, the strictest first.
var Packs = []Pack{
	{"careful", "a person decides everything that is not reading or editing in the working directory."},
	{"balanced", "a person decides what is right now and then, and wrong for good when it is not."},
	{"trusting", "a person decides what cannot be taken back, and little else."},
}

// Default is the policy of a first start, with its comments.
func Default() []byte { return Packs[1].Source() }

// Source is the policy of the pack, with its comments.
func (p Pack) Source() []byte { return p.join("head", "never", p.Name, "foot") }

// Tests is the test file of the pack.
func (p Pack) Tests() []byte { return p.join("never_test", p.Name+"_test") }

// join puts parts together.
func (p Pack) join(parts ...string) []byte {
	var all strings.Builder
	for _, name := range parts {
		text, err := packFiles.ReadFile("packs/" + name + ".yaml")
		if err != nil {
			panic(err) // they are embedded
		}
		all.Write(text)
	}
	return []byte(strings.NewReplacer("PACK", p.Name, "SUMMARY", p.Summary).Replace(all.String()))
}
