// Package command is what every command is made of: the streams it reads and writes, the flags
// that all of them share, how its arguments are checked, how the server is found, what it shows as
// text or as JSON, and with which code it ends. It knows no command: those stand in package cli
// and in the packages beside this one, each in the file of its group.
//
// Exit codes: 0 done, 1 failed, 2 wrong usage, 3 refused by policy or by an operator, 4 server not
// reachable.
package command

import (
	"context"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"signalbox/internal/cli/api"
	"signalbox/internal/cli/output"
	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/server"
	"signalbox/internal/wire"
)

// App is what the commands of one call of the program share.
type App struct {
	In       io.Reader
	Out, Err output.Printer
	Server   string // --server
	Data     string // --data
	JSON     bool   // --json
}

// DataDir is the data folder for commands that only read it.
func (a *App) DataDir() string {
	for _, dir := range []string{a.Data, os.Getenv("SIGNALBOX_DATA")} {
		if dir != "" {
			return dir
		}
	}
	return server.Settings[0].Default
}

// Client finds the server and the token: flag, environment, data folder.
func (a *App) Client() (*api.Client, error) {
	base, err := a.Address()
	if err != nil {
		return nil, err
	}
	token := strings.TrimSpace(os.Getenv("SIGNALBOX_TOKEN"))
	if token == "" {
		text, err := os.ReadFile(filepath.Join(a.DataDir(), server.TokenFile))
		if err != nil {
			return nil, fault.Wrap(err, fault.Unauthenticated,
				"No operator token was found. "+
					"Put one into SIGNALBOX_TOKEN, or say with --data where the server's data folder is.")
		}
		token = strings.TrimSpace(string(text))
	}
	return &api.Client{Base: base, Token: token}, nil
}

// Address finds the server.
func (a *App) Address() (string, error) {
	base, from := a.Server, "--server"
	if base == "" {
		base, from = os.Getenv("SIGNALBOX_SERVER"), "SIGNALBOX_SERVER"
	}
	if base == "" {
		text, err := os.ReadFile(filepath.Join(a.DataDir(), server.URLFile))
		if err != nil {
			return "", fault.New(api.Unreachable,
				"No server was found: there is no data folder at %s. "+
					"Start one with `signalbox up`, or say where it is with --data, --server or SIGNALBOX_SERVER.", a.DataDir())
		}
		base, from = strings.TrimSpace(string(text)), filepath.Join(a.DataDir(), server.URLFile)
	}
	if u, err := url.Parse(base); err != nil || u.Host == "" {
		return "", Usage("The server's address (from %s) should look like http://127.0.0.1:7446, and is %q.", from, base)
	}
	return strings.TrimSuffix(base, "/"), nil
}

// Elsewhere reports whether the server is to be reached over the network: it was named, or a key
// says who asks.
func (a *App) Elsewhere(key string) bool {
	return a.Server != "" || os.Getenv("SIGNALBOX_SERVER") != "" || key != ""
}

// Call finds the server and calls it once.
func (a *App) Call(ctx context.Context, r api.Request, answer any) error {
	c, err := a.Client()
	if err != nil {
		return err
	}
	return c.Call(ctx, r, answer)
}

// Asker calls the server and shows what comes back: an App, or one that speaks as somebody else.
type Asker interface {
	Call(ctx context.Context, r api.Request, answer any) error
	Show(v any, text func(w output.Printer)) error
}

// Ask calls the server once and shows the answer.
func Ask[T any](ctx context.Context, a Asker, r api.Request, text func(w output.Printer, answer T)) error {
	var answer T
	if err := a.Call(ctx, r, &answer); err != nil {
		return err
	}
	return a.Show(answer, func(w output.Printer) { text(w, answer) })
}

// WithJSON gives a command the flag --json.
func (a *App) WithJSON(c *cobra.Command) *cobra.Command {
	c.Flags().BoolVar(&a.JSON, "json", false, "print JSON")
	return c
}

// Show prints v as JSON with --json, and as text otherwise.
func (a *App) Show(v any, text func(w output.Printer)) error {
	if !a.JSON {
		text(a.Out)
		return nil
	}
	data, err := wire.Marshal(v)
	if err != nil {
		return err
	}
	_, err = a.Out.Write(append(data, '\n'))
	return err
}

// ReadFile reads a file that was named, or standard input for "-".
func (a *App) ReadFile(name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(a.In)
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, fault.Wrap(err, fault.NotFound,
			"Cannot read %s. Check that it is there and that this user may read it.", name)
	}
	return data, nil
}

// VerifierKey reads the key that verifies the ledger: from the file that the flag names, or the data
// folder's for "".
func (a *App) VerifierKey(flag, path string) (string, error) {
	if path == "" {
		path = filepath.Join(a.DataDir(), ledger.PublicKeyFile)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fault.Wrap(err, fault.InvalidRequest,
			"The key that verifies is not at %s. Give a file with --%s; a server shows its key at /ledger/key.", path, flag)
	}
	return string(text), nil
}

// Download writes what the server has to a file, whole or not at all, or to standard output if
// the path is empty. check is the command that checks the file.
func (a *App) Download(ctx context.Context, r api.Request, path, check string) error {
	c, err := a.Client()
	if err != nil {
		return err
	}
	res, err := c.Do(ctx, r)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	if path == "" {
		_, err = io.Copy(a.Out, res.Body)
		return api.BrokeOff(err)
	}
	n, err := save(path, res.Body)
	if err == nil {
		a.Err.Print("Wrote %s (%s bytes). Check it with `%s %s`.", path, output.Thousands(n), check, path)
	}
	return err
}

// save writes a file, whole or not at all.
func save(path string, r io.Reader) (int64, error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".download-*")
	if err != nil {
		return 0, fault.Wrap(err, fault.StoreReadOnly,
			"Cannot write to %s. Choose another place with --out.", filepath.Dir(path))
	}
	defer func() { _ = os.Remove(f.Name()) }()
	n, err := io.Copy(f, r)
	if e := f.Close(); err == nil {
		err = e
	}
	if err != nil {
		return 0, api.BrokeOff(err)
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return 0, fault.Wrap(err, fault.StoreReadOnly, "Cannot write %s. Choose another place with --out.", path)
	}
	return n, nil
}
