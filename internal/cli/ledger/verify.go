package ledger

import (
	"bufio"
	"cmp"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"signalbox/internal/cli/api"
	"signalbox/internal/cli/command"
	"signalbox/internal/cli/output"
	"signalbox/internal/drift"
	"signalbox/internal/fault"
	"signalbox/internal/gate"
	"signalbox/internal/handoff"
	"signalbox/internal/ledger"
	"signalbox/internal/ledger/notes"
	"signalbox/internal/wire"
)

// verified is what `ledger verify --json` prints. It is printed only for a file that
// passed, so Verified is always true; a file that fails is an error with exit code 1.
type verified struct {
	Verified   bool     `json:"verified"`
	Origin     string   `json:"origin,omitempty"`
	Entries    int64    `json:"entries,omitempty"`
	Erased     int64    `json:"erased,omitempty"`
	Root       string   `json:"root,omitempty"`
	Checkpoint int64    `json:"checkpoint,omitempty"`
	Record     wire.Raw `json:"record,omitempty"`
	Cosigned   int      `json:"cosigned,omitempty"` // by so many of the witnesses that were named
	Key        string   `json:"key,omitempty"`      // that is in force at the end of the export

	// The votes: signed and verified, not signed because nobody had asked for that, and not verifiable
	// because a body was erased.
	SignedVotes   int64         `json:"signed_votes,omitempty"`
	UnsignedVotes int64         `json:"unsigned_votes,omitempty"`
	ErasedVotes   int64         `json:"erased_votes,omitempty"`
	Votes         []gate.Judged `json:"votes,omitempty"` // of the gate that was asked for

	// The handoffs, each within the one above it, and the decisions that were made under them.
	Handoffs       int64 `json:"handoffs,omitempty"`
	ErasedHandoffs int64 `json:"erased_handoffs,omitempty"`
	UnderHandoffs  int64 `json:"decisions_under_handoffs,omitempty"`

	// Of proof files: the entries whose bodies they carry, and the gates that these are about.
	Proved []ledger.EntryView `json:"proved,omitempty"`
	Gates  []gate.Proved      `json:"gates,omitempty"`

	ClockHealed int64 `json:"clock_healed,omitempty"` // how often time steps back, where an entry says so
}

// newVerify needs no server and trusts none: only the key. The kind of file is
// recognised by its first bytes, so that nobody has to name it.
func newVerify(a *command.App) *command.Command {
	c := a.WithJSON(&command.Command{
		Use: "verify FILE...", Short: "Check an export or proof files, offline",
		Long: `Check an export or a proof file, offline: every body against its record, every
record against the tree, the tree against the signed checkpoint, every vote that was
signed with a passkey against the key that the ledger has, and every handoff: that it is
within the one above it, and was used by the agent that had it while it was open.

A proof file with a body shows what its entry says. Several of them are read together:
those of gate.opened, gate.voted and gate.resolved show what was approved, and by whom.

With a key that was replaced, an export shows each succession, which both keys have signed.

The key and a checkpoint to compare with are taken from the data folder if they are
not given. A checkpoint that is given must be covered by the file.`,
		Args: command.AtLeast(1, "a file made by `signalbox ledger export` or `signalbox ledger prove`"),
	})
	trust := addTrustFlags(c)
	c.RunE = func(_ *command.Command, args []string) error {
		key, against, err := trust.read(a)
		if err != nil {
			return err
		}
		f, err := os.Open(args[0])
		if err != nil {
			return fault.Wrap(err, fault.InvalidRequest, "Cannot read %s.", args[0])
		}
		defer func() { _ = f.Close() }()
		r := bufio.NewReaderSize(f, 1<<16)
		if start, _ := r.Peek(64); ledger.IsProof(start) {
			if trust.checkpoint != "" {
				return command.Usage("A proof file carries its checkpoint with it; --checkpoint is for exports.")
			}
			return verifyProofs(a, args, key, trust)
		}
		if len(args) > 1 {
			return command.Usage("An export is verified alone; several files have to be proof files.")
		}
		return verifyExport(a, r, key, against, "", trust)
	}
	return c
}

// NewGatesVerify is `ledger verify` for who asks about votes. With an export it needs no server, and
// with none it trusts the server no more: all that it says is checked with the key.
func NewGatesVerify(a *command.App) *command.Command {
	c := a.WithJSON(&command.Command{
		Use: "verify [GATE_ID]", Short: "Check the passkey signatures of votes, from an export alone",
		Long: `Check the passkey signatures of all votes, from an export alone: that the passkey was
enrolled at that moment, and signed the gate as the ledger has it and that decision.
Votes that had to be signed and are not are an error. With a gate, its votes are listed.

Without --export the server is asked for one. The key and the checkpoint are those of
` + "`signalbox ledger verify`" + `.`,
		Args:    command.AtMost(1, "the id of a gate, from `signalbox gates ls`"),
		Example: "  signalbox gates verify gate_01… --export ledger.export",
	})
	export := c.Flags().String("export", "", "a file made by `signalbox ledger export`, instead of asking the server")
	trust := addTrustFlags(c)
	c.RunE = func(c *command.Command, args []string) error {
		key, against, err := trust.read(a)
		if err != nil {
			return err
		}
		gateID := strings.Join(args, "")
		if *export != "" {
			f, err := os.Open(*export)
			if err != nil {
				return fault.Wrap(err, fault.InvalidRequest, "Cannot read %s.", *export)
			}
			defer func() { _ = f.Close() }()
			return verifyExport(a, f, key, against, gateID, trust)
		}
		client, err := a.Client()
		if err != nil {
			return err
		}
		res, err := client.Do(c.Context(), api.Get("/ops/ledger/export"))
		if err != nil {
			return err
		}
		defer func() { _ = res.Body.Close() }()
		return verifyExport(a, res.Body, key, against, gateID, trust)
	}
	return c
}

// trust is what a file is checked against.
type trust struct {
	key, checkpoint string
	witnesses       []string
	quorum          int
}

// addTrustFlags gives a command the flags --key and --checkpoint.
func addTrustFlags(c *command.Command) *trust {
	t := &trust{}
	c.Flags().StringVar(&t.key, "key", "", "the file with the verifier key ("+ledger.PublicKeyFile+" in the data folder)")
	c.Flags().StringVar(&t.checkpoint, "checkpoint", "",
		"a file with a checkpoint to compare with (the one in the data folder)")
	c.Flags().StringArrayVar(&t.witnesses, "witness", nil, "the key of a witness that has to have cosigned; may be repeated")
	c.Flags().IntVar(&t.quorum, "quorum", 0, "how many of the witnesses have to have cosigned; all of them when absent")
	return t
}

// cosigned wants the cosignatures of the quorum in a checkpoint, and says how many of the witnesses it has.
func (t *trust) cosigned(signed []byte) (found int, err error) {
	need := t.quorum
	if need == 0 {
		need = len(t.witnesses)
	}
	if need < 0 || need > len(t.witnesses) {
		return 0, command.Usage("--quorum should be at most the number of witnesses, and is %d of %d.", need, len(t.witnesses))
	}
	seen := map[string]bool{}
	for _, text := range t.witnesses {
		w, err := notes.ParseWitness(text)
		if err != nil {
			return 0, err
		}
		if line, _ := w.Find(signed); line != "" && !seen[w.String()] {
			seen[w.String()] = true
			found++
		}
	}
	if found < need {
		return found, fault.New(fault.VerificationFailed, "The checkpoint has the cosignatures of %d witnesses, and should have %d.",
			found, need)
	}
	return found, nil
}

func (t *trust) read(a *command.App) (key string, compare *ledger.Against, err error) {
	if key, err = a.VerifierKey("key", t.key); err != nil {
		return "", nil, err
	}
	compare, err = against(a, t.checkpoint, t.key == "")
	return key, compare, err
}

// against returns the checkpoint to compare the file with, or nil for none. A checkpoint
// that the user names must be covered by the file: somebody kept it to detect that the
// end of a ledger was cut off. The one in the data folder belongs to the key there, is
// used only with that key, and may be newer than the file.
func against(a *command.App, path string, ownKey bool) (*ledger.Against, error) {
	if path != "" {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fault.Wrap(err, fault.InvalidRequest, "Cannot read the checkpoint %s.", path)
		}
		return &ledger.Against{Signed: text}, nil
	}
	text, err := os.ReadFile(filepath.Join(a.DataDir(), ledger.CheckpointFile))
	if err != nil || !ownKey {
		return nil, nil //nolint:nilerr // without one the file is checked against its own
	}
	return &ledger.Against{Signed: text, MayBeLater: true}, nil
}

// verifyExport streams the file, and keeps no more than the gates that wait and the handoffs. Erased bodies are
// reported but do not fail: erasing is allowed, and the records prove that nothing else is missing.
// The votes of the gate are listed, of none for "".
func verifyExport(a *command.App, r io.Reader, key string, against *ledger.Against, gateID string, t *trust) error {
	shown, votes, handoffs := output.NewProgress(a.Err), gate.NewSignatures(gateID), handoff.NewAudit()
	var times drift.Audit
	check := func(e *ledger.Entry) error {
		if err := times.Entry(e); err != nil {
			return err
		}
		if err := votes.Entry(e); err != nil {
			return err
		}
		return handoffs.Entry(e)
	}
	v, err := ledger.VerifyExport(r, key, against, ledger.Watch{Progress: shown.Of("verifying"), Entry: check})
	shown.End()
	if err != nil {
		return err
	}
	cosigned, err := t.cosigned(v.Note)
	if err != nil {
		return err
	}
	if gateID != "" && len(votes.Votes) == 0 {
		return fault.New(fault.NotFound, "Nobody has voted at a gate %.80q in this ledger. All else verifies.", gateID)
	}
	return a.Show(verified{
		Verified: true, Origin: v.Origin, Entries: v.Entries, Erased: v.Erased, Root: v.Root.String(),
		Checkpoint: v.Checkpoint, SignedVotes: votes.Verified, UnsignedVotes: votes.Unsigned, ErasedVotes: votes.Erased,
		Votes: votes.Votes, Handoffs: handoffs.Handoffs, ErasedHandoffs: handoffs.Erased, UnderHandoffs: handoffs.Decisions,
		ClockHealed: times.Healed, Cosigned: cosigned, Key: v.Keys[len(v.Keys)-1].Text,
	}, func(w output.Printer) {
		w.Print("Verified: %s entries of %s, exactly as they were signed.",
			output.Thousands(v.Entries), v.Origin)
		w.Print("  root        %s", v.Root)
		if cosigned > 0 {
			w.Print("  witnesses   %s cosigned it", output.Count(cosigned, "witness"))
		}
		for _, k := range v.Keys[1:] {
			w.Print("  key         %s took over with entry %s", k.Text, output.Thousands(k.From))
		}
		if v.Erased > 0 {
			w.Print("  erased      %s bodies; their records are proved all the same", output.Thousands(v.Erased))
		}
		switch {
		case v.Later:
			w.Print("  checkpoint  the one compared with is of a later time, over %s entries",
				output.Thousands(v.Checkpoint))
		case v.Checkpoint > 0:
			w.Print("  checkpoint  over %s entries, agrees", output.Thousands(v.Checkpoint))
		}
		if times.Healed > 0 {
			w.Print("  clock       was healed %s, by up to %s; else no entry is earlier than the one before",
				output.Count(int(times.Healed), "time"), times.Most.Round(time.Second))
		}
		printHandoffs(w, handoffs)
		printVotes(w, votes)
	})
}

// printHandoffs says what became of the handoffs.
func printHandoffs(w output.Printer, h *handoff.Audit) {
	if h.Handoffs > 0 {
		w.Print("  handed on   %s handoffs, chain checked; %s decisions under them", output.Thousands(h.Handoffs),
			output.Thousands(h.Decisions))
	}
	if h.Erased > 0 {
		w.Print("  erased      %s handoffs cannot be verified: their bodies, or those of handoffs above them, were erased",
			output.Thousands(h.Erased))
	}
}

// printVotes says what became of the votes.
func printVotes(w output.Printer, votes *gate.Signatures) {
	if votes.Verified > 0 {
		w.Print("  signed      %s votes, each by a passkey that was enrolled, for what it decided",
			output.Thousands(votes.Verified))
	}
	if votes.Unsigned > 0 {
		w.Print("  not signed  %s votes, which did not have to be", output.Thousands(votes.Unsigned))
	}
	if votes.Erased > 0 {
		w.Print("  erased      %s votes cannot be verified: their bodies, or those of their gates, were erased",
			output.Thousands(votes.Erased))
	}
	results := map[string]string{
		gate.SignedVerified: "signed with a passkey, verified", gate.SignedNot: "not signed, and did not have to be",
		gate.SignedErased: "erased, cannot be verified",
	}
	for _, v := range votes.Votes {
		say := "rejected"
		if v.Approve {
			say = "approved"
		}
		w.Print("%s  %s %s: %s", output.Moment(v.At), cmp.Or(v.Operator, "(erased)"), say, results[v.Result])
	}
}
