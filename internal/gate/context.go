package gate

import (
	"bytes"
	"fmt"
	"strings"

	"signalbox/internal/id"
	"signalbox/internal/ledger"
	"signalbox/internal/secret"
)

const (
	// maxContext is how many bytes of one part of the context are kept: enough to see what was asked,
	// and little beside what is approved.
	maxContext = 4 << 10
	// keptHead is how many of them are the beginning. The rest are the end, where people often put what
	// they want.
	keptHead = maxContext * 3 / 4
	// lookedAt is how much at both ends is searched for credentials before it is cut.
	lookedAt = 16 * maxContext
)

// bounded is a context without the parts that are empty, with each part as text that can be stored
// and of a length that can be read.
func bounded(context []Fact) (out []Fact) {
	for _, part := range context {
		if text := strings.TrimSpace(storable(part.Value)); text != "" {
			out = append(out, Fact{part.Name, ends(text)})
		}
	}
	return out
}

// storable is valid UTF-8 without NUL, which no database keeps.
func storable(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}

// ends is a text, or its beginning and its end with how much was left out between. Credentials are
// replaced before it is cut: half of one would no longer be found when the entry is stored.
func ends(text string) string {
	if len(text) <= maxContext {
		return text
	}
	size := len(text)
	head, tail := secret.Hide(text[:min(size, lookedAt)]), secret.Hide(text[max(0, size-lookedAt):])
	head = strings.ToValidUTF8(head[:min(len(head), keptHead)], "")
	tail = strings.ToValidUTF8(tail[max(0, len(tail)-(maxContext-keptHead)):], "")
	return fmt.Sprintf("%s\n[… %d bytes left out …]\n%s", head, max(0, size-len(head)-len(tail)), tail)
}

// AskedAt is the run that asks at a gate, for the entry that opens it, and "" for any other.
func AskedAt(e *ledger.Entry) string {
	if e.Kind != "gate.opened" || !bytes.Contains(e.Body, []byte(`"run":"run_`)) {
		return ""
	}
	o, err := ledger.Read[Opening](e)
	if err != nil {
		return "" // whoever shows the gate says what is wrong
	}
	return o.Origin.Run
}

// AskedBy is what has the form of an id of a run of ours, or "".
func AskedBy(run string) string {
	if !id.Is("run", run) {
		return ""
	}
	return run
}
