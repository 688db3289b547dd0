package gate

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/secret"
)

// How much a gate shows. What is longer is kept beside it, and only its beginning is shown.
const (
	// MaxWhole is the longest artifact or text that is shown whole, in bytes: a text of 1 MiB, even if
	// JSON has to escape each of its characters.
	MaxWhole = 2 << 20
	// maxShown is how many bytes of artifacts are shown in all, since many make a page as heavy as a
	// large one.
	maxShown = 8 << 20
	// beginning is how many bytes are shown of what is not shown whole.
	beginning = 64 << 10
	// MaxKept is the longest artifact that a person can be asked about: what is kept is one entry.
	MaxKept = ledger.MaxBody
)

// kindKept is the entry of an artifact that is not shown whole. Its body is the artifact, byte for
// byte. It stands before the gate's own entry, in the order of Shown.Unshown; see Gates.Artifact.
const kindKept = "gate.kept"

// Unshown says that a gate shows only the beginning of an artifact. Whoever approves has not seen the
// rest, so their vote has to say that they know; see Gate.Unseen.
type Unshown struct {
	Artifact int    `json:"artifact"` // its number, from 1
	Name     string `json:"name,omitempty"`
	Bytes    int64  `json:"bytes"`  // all of it
	Shown    int64  `json:"shown"`  // of these, from the beginning
	SHA256   string `json:"sha256"` // of all of it, in hex
}

// Rest is how many bytes are not shown.
func (u Unshown) Rest() int64 { return u.Bytes - u.Shown }

// String says what is not shown, for people.
func (u Unshown) String() string {
	name := fmt.Sprintf("artifact %d", u.Artifact)
	if u.Name != "" {
		name += " (" + u.Name + ")"
	}
	return fmt.Sprintf("%d of the %d bytes of %s, SHA-256 %s", u.Rest(), u.Bytes, name, u.SHA256)
}

// Unseen is how many bytes of what is decided the gate does not show, 0 if it shows all. A vote to
// approve names this number, as the second step that says: I know that I have not seen these.
func (g *Gate) Unseen() (bytes int64) {
	for _, u := range g.Unshown {
		bytes += u.Rest()
	}
	return bytes
}

// checkUnseen refuses the approval of somebody who was shown a part, and did not say that they know.
// A vote without a digest is a program's, which is shown nothing.
func (g *Gate) checkUnseen(b Ballot) error {
	unseen := g.Unseen()
	if !b.Approve || b.Digest == "" || b.Unseen == unseen {
		return nil
	}
	if unseen == 0 {
		return fault.New(fault.NotAllShown, "This gate shows all that is decided. Leave unseen out. Nothing was changed.").
			About("unseen")
	}
	var parts []string
	for _, u := range g.Unshown {
		parts = append(parts, u.String())
	}
	return fault.New(fault.NotAllShown,
		"Not all that is decided is shown: %s. Look at the rest, or approve what you have "+
			"not seen by saying how much: \"unseen\": %d, --unseen %[2]d, or the box on the page. Nothing was changed.",
		strings.Join(parts, "; "), unseen).
		About("unseen").
		With("unshown", g.Unshown).
		With("unseen", unseen)
}

// attached is an artifact that Attach was given.
type attached struct {
	name    string
	content []byte
}

// Attach adds an artifact to what is shown: bytes under a name. A JSON object is shown as such,
// anything else as text.
func (o *Opening) Attach(name string, content []byte) {
	if o.attached == nil {
		o.attached = map[int]attached{}
	}
	o.attached[len(o.Shown.Artifacts)] = attached{strings.ToValidUTF8(name, "\uFFFD"), content}
	o.Shown.Artifacts = append(o.Shown.Artifacts, nil) // Prepare makes it
}

// Excerpt is a text that repeats what an artifact shows, cut if it is long.
func Excerpt(text string) string {
	if len(text) <= beginning {
		return text
	}
	return text[:cutAt(text)] + "… (the artifacts have all of it)"
}

// cutAt is where a long text is cut: not inside of a character, and not inside of a credential, half of
// which would no longer be found when the entry is stored.
func cutAt[T string | []byte](long T) int {
	text := string(long[:min(len(long), beginning+lookedAt)])
	at := min(beginning, len(text))
	for _, found := range secret.Find(text) {
		if found.Start < at && at < found.End {
			at = found.Start
		}
	}
	for back := 1; back < utf8.UTFMax && at > 0 && at < len(text) && !utf8.RuneStart(text[at]); back++ {
		at--
	}
	return at
}

// keepLong cuts what is too long to be shown whole, and returns all of it, in the order of
// Shown.Unshown.
func (o *Opening) keepLong() (kept [][]byte, err error) {
	o.Shown.Facts, o.Shown.Artifacts = slices.Clone(o.Shown.Facts), slices.Clone(o.Shown.Artifacts)
	o.attachLong("what was done", &o.Shown.Summary)
	o.attachLong("what is proposed", &o.Shown.ProposedAction)
	for i := range o.Shown.Facts {
		o.attachLong(o.Shown.Facts[i].Name, &o.Shown.Facts[i].Value)
	}
	room := maxShown
	for i, shown := range o.Shown.Artifacts {
		a, ok := o.attached[i]
		if !ok {
			a.content = shown
		} else if len(a.content) <= MaxWhole {
			shown = NewArtifact(a.name, a.content)
		}
		if len(a.content) > MaxKept {
			return nil, fault.New(fault.TooLarge, "This has %d bytes, and a person can be asked about %d at most. Ask for "+
				"less at once.", len(a.content), MaxKept)
		}
		if len(a.content) > MaxWhole || len(shown) > room {
			at, sum := cutAt(a.content), sha256.Sum256(a.content)
			shown = NewArtifact(a.name, a.content[:at])
			kept = append(kept, a.content)
			o.Shown.Unshown = append(o.Shown.Unshown, Unshown{
				i + 1, a.name, int64(len(a.content)), int64(at), hex.EncodeToString(sum[:]),
			})
		}
		o.Shown.Artifacts[i], room = shown, max(0, room-len(shown))
	}
	o.attached = nil
	return kept, nil
}

// attachLong moves a text that is too long into an artifact of its own.
func (o *Opening) attachLong(name string, text *string) {
	if len(*text) > MaxWhole {
		o.Attach(name, []byte(*text))
		*text = Excerpt(*text)
	}
}

// Artifact is one artifact of a gate as a download: the bytes that the protocol was asked about if it
// is not shown whole, else its content, or all of its JSON if it has more than that. The caller has to
// be allowed to see the gate.
func (g *Gates) Artifact(ctx context.Context, gateID string, number int) (content []byte, err error) {
	found, err := g.Show(ctx, gateID)
	if err != nil {
		return nil, err
	}
	if number < 1 || number > len(found.Artifacts) {
		return nil, fault.New(fault.NotFound, "The gate %s has %d artifacts, and no number %d. The first is number 1.",
			found.ID, len(found.Artifacts), number)
	}
	i := slices.IndexFunc(found.Unshown, func(u Unshown) bool { return u.Artifact == number })
	if i < 0 {
		raw := found.Artifacts[number-1]
		if a := ReadArtifact(raw); a.Rest == nil {
			return []byte(a.Text), nil
		}
		return raw, nil
	}
	e, err := g.ledger.Entry(ctx, found.opened-int64(len(found.Unshown)-i))
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(e.Body)
	switch {
	case e.Kind != kindKept || e.Subject != found.ID:
		return nil, fmt.Errorf("entry %d is not artifact %d of %s", e.Seq, number, found.ID)
	case e.Body == nil:
		return nil, fault.New(fault.NotFound, "The artifact was erased, as ledger.retention says. Its SHA-256 was %s.",
			found.Unshown[i].SHA256)
	case hex.EncodeToString(sum[:]) != found.Unshown[i].SHA256:
		return nil, fmt.Errorf("entry %d does not have the SHA-256 of artifact %d of %s", e.Seq, number, found.ID)
	}
	return e.Body, nil
}
