package dump

import (
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/mod/sumdb/note"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
)

// Sign signs a text with the ledger's key of a data folder. The text must not begin with the log's origin, which is how
// a checkpoint begins. With a verifier key it is an error if that is not the one that goes with the signing key.
func Sign(dir, text, vkey string) ([]byte, error) {
	path := filepath.Join(dir, ledger.KeyFile)
	private, err := os.ReadFile(path)
	if err != nil {
		return nil, fault.Wrap(err, fault.NotFound,
			"The ledger's key is not at %s. A backup is signed with it, and a restored ledger goes on with it: work on a node "+
				"that has it, or put it there from where you keep it.", path)
	}
	signer, err := note.NewSigner(strings.TrimSpace(string(private)))
	if err != nil {
		return nil, fault.Wrap(err, fault.InvalidConfig, "%s does not hold a signing key.", path)
	}
	if strings.HasPrefix(text, signer.Name()+"\n") {
		return nil, fault.New(fault.Internal, "A text that looks like a checkpoint was to be signed.")
	}
	signed, err := note.Sign(&note.Note{Text: text}, signer)
	if err != nil {
		return nil, err
	}
	if _, err := Verify(signed, vkey); err != nil {
		return nil, fault.Wrap(err, fault.LedgerMismatch,
			"The key in %s belongs to another ledger. Use the data folder that goes with this one.", path)
	}
	return signed, nil
}
