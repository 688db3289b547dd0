// Package command is what every command is made of: streams, shared flags, checks of
// arguments, the way to the server, output as text or JSON, and exit codes. It knows no
// command; those are in package cli and in the packages beside this one, one file per
// group.
//
// Exit codes: 0 done, 1 failed, 2 wrong usage, 3 refused by policy or by an operator, 4
// server not reachable. They are part of the interface: scripts and hooks branch on
// them.
package command

import (
	"context"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"signalbox/internal/cli/api"
	"signalbox/internal/cli/keep"
	"signalbox/internal/cli/output"
	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/server"
	"signalbox/internal/wire"
)

// App holds what the commands of one invocation share: its streams, and the flags that
// every command has. It is made by cli.Main; flags are set before a command runs and do
// not change afterwards.
type App struct {
	In       io.Reader
	Out, Err output.Printer
	Server   string // --server
	Data     string // --data
	JSON     bool   // --json
}

// SharedFolder is where the server of `signalbox service install` puts what users of this machine need to find
// it: its address and its socket. Its data folder is closed to them.
const SharedFolder = "/run/signalbox"

// DataDir is the data folder, for commands that only read it. It reads no configuration
// file: the file is in this very folder. If there is none, and a service runs, it is the service's
// shared folder.
func (a *App) DataDir() string {
	for _, dir := range []string{a.Data, os.Getenv("SIGNALBOX_DATA")} {
		if dir != "" {
			return dir
		}
	}
	dir := server.Settings[0].Default
	if _, err := os.Stat(dir); err != nil {
		if _, err := os.Stat(filepath.Join(SharedFolder, server.URLFile)); err == nil {
			return SharedFolder
		}
	}
	return dir
}

// Client finds the server and a token, in the order flag, environment, `login --cli`, data folder. It
// makes no call. The token of the data folder is an admin's, so whoever may read that
// folder administers the server.
func (a *App) Client() (*api.Client, error) {
	base, err := a.Address()
	if err != nil {
		return nil, err
	}
	token := strings.TrimSpace(os.Getenv("SIGNALBOX_TOKEN"))
	if keeper, err := keep.New(); token == "" && err == nil {
		kept, _ := keeper.Get(base, time.Now())
		token = kept.Token
	}
	if token == "" {
		text, err := os.ReadFile(filepath.Join(a.DataDir(), server.TokenFile))
		if err != nil {
			return nil, fault.Wrap(err, fault.Unauthenticated,
				"No operator token was found. Sign in with `signalbox login --cli`, put a token into SIGNALBOX_TOKEN, or say "+
					"with --data where the server's data folder is.")
		}
		token = strings.TrimSpace(string(text))
	}
	return &api.Client{Base: base, Token: token}, nil
}

// Address finds the server without a token, for commands that bring a key of their own.
func (a *App) Address() (string, error) {
	base, from := a.Server, "--server"
	if base == "" {
		base, from = os.Getenv("SIGNALBOX_SERVER"), "SIGNALBOX_SERVER"
	}
	if base == "" {
		text, err := os.ReadFile(filepath.Join(a.DataDir(), server.URLFile))
		if kept := lastServer(); err != nil && a.Data == "" && os.Getenv("SIGNALBOX_DATA") == "" && kept != "" {
			return kept, nil
		}
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

// lastServer is where `login --cli` signed this user in, "" for nowhere.
func lastServer() string {
	keeper, err := keep.New()
	if err != nil {
		return ""
	}
	return keeper.Server()
}

// Elsewhere reports whether to reach the server over the network and not through the
// socket in the data folder: an address was given, or a key, which only the network API
// takes.
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

// Asker calls the server and shows the answer: an App, or something that calls with
// another identity.
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

// Collect finds the server and reads a list to its end. of takes the rows and the cursor of the next page from a page.
// The rows are not nil: --json prints an empty list as [], never as null.
func Collect[P, T any](
	ctx context.Context, a *App, path string, query api.Query, of func(P) (rows []T, next string),
) ([]T, error) {
	c, err := a.Client()
	if err != nil {
		return nil, err
	}
	all := []T{}
	err = api.Pages(ctx, c, path, query, func(page P) string {
		rows, next := of(page)
		all = append(all, rows...)
		return next
	})
	return all, err
}

// WithJSON gives a command the flag --json.
func (a *App) WithJSON(c *cobra.Command) *cobra.Command {
	c.Flags().BoolVar(&a.JSON, "json", false, "print JSON")
	return c
}

// Listing is a command `ls`, which takes no arguments and has the flag --json.
func (a *App) Listing(short string) *cobra.Command {
	return a.WithJSON(&cobra.Command{Use: "ls", Short: short, Args: NoArguments()})
}

// About is a command about one thing, which its only argument names, and has the flag --json. what says in an error
// what the argument should be.
func (a *App) About(use, short, what string) *cobra.Command {
	return a.WithJSON(&cobra.Command{Use: use, Short: short, Args: Exactly(1, what)})
}

// Show prints v as one line of JSON with --json, and as text otherwise. A command prints
// nothing else to standard output, so that its JSON can be parsed.
func (a *App) Show(v any, text func(w output.Printer)) error {
	if !a.JSON {
		text(a.Out)
		return nil
	}
	data, err := wire.Marshal(v)
	if err != nil {
		return err
	}
	return a.Out.JSON(data)
}

// Pages is Show with text that may be long: on a terminal it goes through a pager.
func (a *App) Pages(ctx context.Context, v any, text func(w output.Printer)) error {
	return a.Show(v, func(w output.Printer) { w.Pages(ctx, text) })
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

// Download writes the server's answer to a file, or to standard output if the path is
// empty. A file appears only when it is complete: half an export must not look like a
// whole one. check is the command that verifies it.
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
		_, err = io.Copy(a.Out.Exactly(), res.Body)
		return api.BrokeOff(err)
	}
	n, err := save(path, res.Body)
	if err == nil {
		a.Err.Print("Wrote %s (%s bytes). Check it with `%s %s`.", path, output.Thousands(n), check, path)
	}
	return err
}

// save writes a file completely or not at all, through a temporary file in the same
// folder, because a rename is atomic only within one file system.
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
