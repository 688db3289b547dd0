//go:build !unix

package ahp

import (
	"errors"
	"os"
)

// errNoSpool is why there are no spools here: the files need locks, and protection from links.
var errNoSpool = errors.New("there are no spools on this system")

func checkFolder(string) error               { return errNoSpool }
func openFile(string, int) (*os.File, error) { return nil, errNoSpool }
func tryLock(*os.File) (bool, error)         { return false, errNoSpool }
func syncFolder(string) error                { return errNoSpool }
