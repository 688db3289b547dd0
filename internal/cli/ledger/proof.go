package ledger

import (
	"cmp"
	"io"
	"os"
	"slices"
	"strings"

	"signalbox/internal/cli/command"
	"signalbox/internal/cli/output"
	"signalbox/internal/fault"
	"signalbox/internal/gate"
	"signalbox/internal/ledger"
)

// verifyProofs verifies proofs, each for one entry, and shows what they prove together. One file has its record in
// the answer; of several it is their entries.
func verifyProofs(a *command.App, files []string, key string, t *trust) error {
	var entries []ledger.Entry
	var last int64
	for _, name := range files {
		e, size, err := verifyProof(name, key, t)
		if err != nil {
			return err
		}
		entries, last = append(entries, e), max(last, size)
	}
	slices.SortFunc(entries, func(a, b ledger.Entry) int { return cmp.Compare(a.Seq, b.Seq) })
	v := verified{Verified: true, Checkpoint: last}
	if len(entries) == 1 {
		v.Record = entries[0].Record
	}
	for i := range entries {
		if entries[i].Body != nil {
			v.Proved = append(v.Proved, entries[i].View())
		}
	}
	gates, err := gate.Prove(entries)
	if err != nil {
		return err
	}
	v.Gates = gates
	return a.Show(v, func(w output.Printer) {
		for i := range entries {
			e := &entries[i]
			w.Print("Verified: this record is in the ledger, under a signed checkpoint over %s entries.\n%s",
				output.Thousands(last), e.Record)
			if e.Body != nil {
				w.Print("%s", e.Body)
			}
		}
		for _, g := range gates {
			printGate(w, g)
		}
	})
}

// printGate says what was shown at a gate, and what people said of it, as far as it was proved.
func printGate(w output.Printer, g gate.Proved) {
	w.Print("\nGate %s, opened %s: %s", g.ID, output.Moment(g.OpenedAt), g.Title)
	for _, text := range []string{g.Summary, g.ProposedAction} {
		if text != "" {
			w.Print("  %s", strings.ReplaceAll(text, "\n", "\n  "))
		}
	}
	w.Print("  digest of what was shown: %s", g.Digest)
	for _, v := range g.Votes {
		say, of := "rejected", "names another digest than that of what was shown"
		if v.Approve {
			say = "approved"
		}
		switch {
		case v.Digest == "":
			of = "names no digest"
		case v.Same:
			of = "for what was shown"
		}
		w.Print("  %s  %s %s, %s", output.Moment(v.At), v.Operator, say, of)
	}
	if g.ResolvedAt != nil {
		w.Print("  %s  %s", output.Moment(*g.ResolvedAt), g.Status)
	} else {
		w.Print("  that it was resolved is not among what is proved")
	}
}

// maxProof bounds a proof file, so that a wrong file is not read into memory: a body in base64, twice.
const maxProof = 2*ledger.MaxBody + 1<<20

func verifyProof(name, key string, t *trust) (ledger.Entry, int64, error) {
	f, err := os.Open(name)
	if err != nil {
		return ledger.Entry{}, 0, fault.Wrap(err, fault.InvalidRequest, "Cannot read %s.", name)
	}
	defer func() { _ = f.Close() }()
	file, err := io.ReadAll(io.LimitReader(f, maxProof))
	if err != nil {
		return ledger.Entry{}, 0, err
	}
	e, size, err := ledger.VerifyProof(file, key)
	if err != nil {
		return e, 0, fault.Wrap(err, fault.VerificationFailed, "%s: %s", name, fault.From(err).Message)
	}
	_, signed, _ := strings.Cut(string(file), "\n\n")
	_, err = t.cosigned([]byte(signed))
	return e, size, err
}
