package cli

import (
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"signalbox/internal/cli/command"
	"signalbox/internal/cli/hook"
	"signalbox/internal/cli/output"
	"signalbox/internal/fault"
	"signalbox/internal/server"
)

// newUp starts the server and stays in the foreground; a service manager starts and
// stops it. It returns after the server has finished the requests in progress and closed
// the database.
func newUp(a *command.App) *command.Command {
	c := &command.Command{
		Use: "up", Short: "Start the server",
		Long: `Start the server and serve until Ctrl-C or SIGTERM. SIGHUP reads the configuration again; what
takes effect by that, and what waits for a restart, is in the log.

The first start creates everything it needs in the data folder.`,
		Args: command.NoArguments(),
	}
	flags := command.AddConfigFlags(c, "listen", "db", "public_url", "tls.cert", "tls.key", "log.level", "log.format")
	c.RunE = func(c *command.Command, _ []string) error {
		// From the first moment on: a signal that nobody waits for ends the process.
		hangup := make(chan os.Signal, 1)
		signal.Notify(hangup, syscall.SIGHUP)
		defer signal.Stop(hangup)
		config, err := flags.Load(a, c)
		if err != nil {
			return err
		}
		config.Again, config.Hangup = func() (*server.Config, error) { return flags.Load(a, c) }, hangup
		config.HookIntact = hook.Intact
		defer runtime.KeepAlive(server.Heap())
		s, err := server.New(c.Context(), config, server.Logger(config, a.Err.Exactly()))
		if err != nil {
			return err
		}
		// Called once the listener accepts connections, so that a script may wait for
		// this output.
		return s.Run(c.Context(), func(s *server.Server) {
			database := map[string]string{"sqlite": "SQLite", "postgres": "PostgreSQL"}[s.Database()]
			if err := s.Refusal(); err != nil {
				a.Out.Print("SIGNALBOX TAKES NO WRITES. %s\nIt can be read at %s", fault.From(err).Message, s.URL())
				return
			}
			a.Out.Print("%sSignalbox is ready at %s", invitation(c, a, s), s.URL())
			a.Out.Print("Data is in %s (%s); the operator token is in %s",
				config.Data, database, filepath.Join(config.Data, server.TokenFile))
			a.Out.Print("Try:  %s agents add my-agent%s", program(), dataFlag(a, config))
		})
	}
	return c
}

// invitation is the dashboard's address with a one-time code, for the person at the
// terminal. Elsewhere, in a log or a journal, others would read the code, so it is not made.
// It is empty if no code can be made, for instance because there is no admin; that must not
// stop a server.
func invitation(c *command.Command, a *command.App, s *server.Server) string {
	if !output.IsTerminal(a.Out) {
		return "Dashboard: `signalbox login` prints an address that signs you in. "
	}
	address, err := s.LoginURL(c.Context())
	if err != nil {
		return ""
	}
	return "Dashboard: " + address + " (once, within 5 minutes). "
}

// program is how the user called this program, for the command that is printed as the
// next step. Under `go run` the path would be that of a temporary file.
func program() string {
	if strings.Contains(os.Args[0], "go-build") {
		return "go run ./cmd/signalbox"
	}
	return os.Args[0]
}

// dataFlag is the flag that another command needs to find the data folder, or nothing if
// this one found it without the flag.
func dataFlag(a *command.App, c *server.Config) string {
	if a.Data == "" {
		return ""
	}
	return " --data " + c.Data
}
