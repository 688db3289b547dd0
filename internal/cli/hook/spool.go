package hook

import (
	"context"
	"crypto/sha256"
	"encoding/hex"

	"signalbox/internal/cli/command"
	"signalbox/internal/cli/harness"
	"signalbox/internal/file"
)

// addSpoolFlags adds the flags of a hook that keeps a spool. `hook install --offline` writes them into the settings, which
// the server watches: the key that says whose lists hold is as hard to change as the hook is.
func (f *asker) addSpoolFlags(c *command.Command) {
	c.Flags().StringVar(&f.folder, "spool", "",
		"a folder in which steps are kept while the server cannot be reached")
	c.Flags().StringVar(&f.trust, "trust", "",
		"the key of the server whose list of tools holds in that time")
}

// trustServer asks the server for the key of its lists, and returns the flags by which a hook trusts it and keeps its
// spool. The folder is that of the user, for this server and this agent.
func (f *asker) trustServer(ctx context.Context) ([]string, error) {
	address, key, err := f.place()
	if err != nil {
		return nil, err
	}
	if f.folder, err = SpoolFolder(address, key); err != nil {
		return nil, err
	}
	f.trust, err = harness.Trusted(ctx, f.App)
	return []string{"--spool", f.folder, "--trust", f.trust}, err
}

// SpoolFolder is where this user's spool for a server and a key of an agent is.
func SpoolFolder(address, key string) (string, error) {
	sum := sha256.Sum256([]byte(address + "\n" + key))
	return file.State("spool", hex.EncodeToString(sum[:8]))
}
