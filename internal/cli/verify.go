package cli

import (
	"bufio"
	"io"
	"os"
	"path/filepath"

	"signalbox/internal/cli/command"
	"signalbox/internal/cli/output"
	"signalbox/internal/fault"
	"signalbox/internal/ledger"
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
}

// newLedgerVerify needs no server and trusts none: only the key. The kind of file is
// recognised by its first bytes, so that nobody has to name it.
func newLedgerVerify(a *command.App) *command.Command {
	c := a.WithJSON(&command.Command{
		Use: "verify FILE", Short: "Check an export or a proof file, offline",
		Long: `Check an export or a proof file, offline: every body against its record, every
record against the tree, the tree against the signed checkpoint.

The key and a checkpoint to compare with are taken from the data folder if they are
not given. A checkpoint that is given must be covered by the file.`,
		Args: command.Exactly(1, "a file made by `signalbox ledger export` or `signalbox ledger prove`"),
	})
	keyPath := c.Flags().String("key", "", "the file with the verifier key ("+ledger.PublicKeyFile+" in the data folder)")
	checkpointPath := c.Flags().String("checkpoint", "",
		"a file with a checkpoint to compare with (the one in the data folder)")
	c.RunE = func(_ *command.Command, args []string) error {
		key, err := a.VerifierKey("key", *keyPath)
		if err != nil {
			return err
		}
		against, err := against(a, *checkpointPath, *keyPath == "")
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
			if *checkpointPath != "" {
				return command.Usage("A proof file carries its checkpoint with it; --checkpoint is for exports.")
			}
			return verifyProof(a, r, key)
		}
		return verifyExport(a, r, key, against)
	}
	return c
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

// verifyExport streams the file, in constant memory. Erased bodies are reported but do
// not fail: erasing is allowed, and the records prove that nothing else is missing.
func verifyExport(a *command.App, r io.Reader, key string, against *ledger.Against) error {
	shown := output.NewProgress(a.Err)
	v, err := ledger.VerifyExport(r, key, against, shown.Of("verifying"))
	shown.End()
	if err != nil {
		return err
	}
	return a.Show(verified{
		Verified: true, Origin: v.Origin, Entries: v.Entries, Erased: v.Erased, Root: v.Root.String(),
		Checkpoint: v.Checkpoint,
	}, func(w output.Printer) {
		w.Print("Verified: %s entries of %s, exactly as they were signed.",
			output.Thousands(v.Entries), v.Origin)
		w.Print("  root        %s", v.Root)
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
	})
}

// verifyProof verifies a proof for one record. A proof has a few kilobytes; the limit of
// 1 MiB keeps a wrong file out of memory.
func verifyProof(a *command.App, r io.Reader, key string) error {
	file, err := io.ReadAll(io.LimitReader(r, 1<<20))
	if err != nil {
		return err
	}
	record, size, err := ledger.VerifyProof(file, key)
	if err != nil {
		return err
	}
	return a.Show(verified{Verified: true, Record: record, Checkpoint: size}, func(w output.Printer) {
		w.Print("Verified: this record is in the ledger, under a signed checkpoint over %s entries.\n%s",
			output.Thousands(size), record)
	})
}
