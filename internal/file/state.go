package file

import (
	"os"
	"path/filepath"

	"signalbox/internal/fault"
)

// State is a folder below the one in which programs of this user keep their state, named by its parts. It need not be there.
func State(parts ...string) (string, error) {
	state := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(state) {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fault.Wrap(err, fault.NotFound, "There is no folder for the state of this user. Set HOME or XDG_STATE_HOME.")
		}
		state = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(append([]string{state, "signalbox"}, parts...)...), nil
}
