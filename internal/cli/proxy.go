package cli

import (
	"cmp"
	"io"
	"os"
	"strings"

	"signalbox/internal/cli/api"
	"signalbox/internal/cli/command"
	"signalbox/internal/cli/output"
	"signalbox/internal/fault"
	"signalbox/internal/proxy"
	"signalbox/internal/roster"
)

// newProxyKeySet reads the key from standard input only. An argument would be visible in
// the list of processes and in the history of the shell. The limit of 64 KiB keeps a
// wrong file from being sent.
func newProxyKeySet(a *command.App) *command.Command {
	c := a.WithJSON(&command.Command{
		Use: "set PROVIDER", Short: "Store a provider's key, read from standard input, in the vault",
		Example: "  printenv ANTHROPIC_API_KEY | signalbox proxy key set anthropic",
		Args:    command.Exactly(1, "a provider: "+strings.Join(proxy.Providers, " or ")),
	})
	workspace := c.Flags().String("workspace", "", "only for the agents of this workspace")
	c.RunE = func(c *command.Command, args []string) error {
		key, err := io.ReadAll(io.LimitReader(a.In, 64<<10))
		if err != nil {
			return err
		}
		in := proxy.NewProviderKey{Key: strings.TrimSpace(string(key)), Workspace: *workspace}
		return command.Ask(c.Context(), a, api.Put(api.Path("/ops/proxy/keys/{}", args[0]), in), printProviderKeys)
	}
	return c
}

// newProxyKeyLs lists the vault with hints, by which people recognise their keys.
func newProxyKeyLs(a *command.App) *command.Command {
	c := a.Listing("List the vault, without the keys")
	c.RunE = func(c *command.Command, _ []string) error {
		return command.Ask(c.Context(), a, api.Get("/ops/proxy/keys"), printProviderKeys)
	}
	return c
}

// newProxyKeyRm removes one key: the one of a workspace with --workspace, or else the
// one for all workspaces. Agents then use what is left, or bring their own key.
func newProxyKeyRm(a *command.App) *command.Command {
	c := a.WithJSON(&command.Command{
		Use: "rm PROVIDER", Short: "Remove a provider's key from the vault",
		Args: command.Exactly(1, "a provider: "+strings.Join(proxy.Providers, " or ")),
	})
	workspace := c.Flags().String("workspace", "", "the key of this workspace")
	c.RunE = func(c *command.Command, args []string) error {
		path := api.InWorkspace(api.Path("/ops/proxy/keys/{}", args[0]), *workspace)
		return command.Ask(c.Context(), a, api.Delete(path), printProviderKeys)
	}
	return c
}

// printProviderKeys prints the vault after a change too, so that one sees which key now
// applies. A key cannot be decrypted if the data folder got another secret, for example
// after a partial restore.
func printProviderKeys(w output.Printer, all proxy.ProviderKeys) {
	rows := output.Rows(all.Keys, func(k proxy.ProviderKey) []string {
		note := ""
		if !k.Readable {
			note = "cannot be decrypted: set it again"
		}
		return []string{k.Provider, cmp.Or(k.Workspace, "all"), k.Hint, output.Since(k.SetAt), note}
	})
	none := "The vault is empty. `signalbox proxy key set anthropic` reads a key from standard input."
	w.Table(none, []string{"PROVIDER", "WORKSPACE", "KEY", "SET", ""}, rows)
}

// newProxyAgent shows the settings of an agent or changes them. The API replaces
// settings as a whole, so they are read first. Two people who change one agent at the
// same moment can undo each other's change.
func newProxyAgent(a *command.App) *command.Command {
	c := a.WithJSON(&command.Command{
		Use: "agent NAME", Short: "Show or set how an agent's calls through the proxy are treated",
		Long: `Shows how an agent's calls are treated. With flags, sets what they name; the other
settings stay as they are.`,
		Example: `  signalbox proxy agent coder --soft-reject
  signalbox proxy agent coder --provider-key-file key.txt`,
		Args: command.Exactly(1, "the name of the agent"),
	})
	workspace := workspaceFlag(c)
	mode := c.Flags().String("mode", "", "hold keeps a call open until it is decided, async answers 202 at once")
	soft := c.Flags().Bool("soft-reject", false, "answer a rejected call with a message that says why, not with an error")
	feedback := c.Flags().Bool("feedback", false,
		"tell the model of a rejection as the error result of its tool call, so that the agent goes on")
	hold := c.Flags().Int("hold-seconds", 0, "how many seconds a call is held at most; 0 for the server's setting")
	file := c.Flags().String("provider-key-file", "",
		"attribute calls with the provider's key in this file to this agent; - is standard input")
	c.RunE = func(c *command.Command, args []string) error {
		path := api.InWorkspace(api.Path("/ops/agents/{}/proxy", args[0]), *workspace)
		var s proxy.Settings
		if err := a.Call(c.Context(), api.Get(path), &s); err != nil {
			return err
		}
		changed := c.Flags().Changed
		in := proxy.NewSettings(s)
		if changed("mode") {
			in.Mode = *mode
		}
		if changed("soft-reject") {
			in.SoftReject = *soft
		}
		if changed("feedback") {
			in.Feedback = *feedback
		}
		if changed("hold-seconds") {
			in.HoldSeconds = *hold
		}
		if changed("provider-key-file") {
			sum, err := keySum(a, *file)
			if err != nil {
				return err
			}
			// Keys are added here and never removed; a key that is registered twice
			// counts once.
			in.ProviderKeys = append(in.ProviderKeys, sum)
		}
		if changed("mode") || changed("soft-reject") || changed("feedback") || changed("hold-seconds") ||
			changed("provider-key-file") {
			if err := a.Call(c.Context(), api.Put(path, in), &s); err != nil {
				return err
			}
		}
		return a.Show(s, func(w output.Printer) {
			w.Print("mode %s, soft reject %t, feedback %t, held for %d s (0: the server's setting), %s registered",
				s.Mode, s.SoftReject, s.Feedback, s.HoldSeconds, output.Count(len(s.ProviderKeys), "provider's key"))
		})
	}
	return c
}

// keySum reads a provider's key and returns its SHA-256. The key itself stays on this
// machine: the server only has to recognise it in the calls of the agent.
func keySum(a *command.App, file string) (string, error) {
	var text []byte
	var err error
	if file == "-" {
		text, err = io.ReadAll(io.LimitReader(a.In, 64<<10))
	} else {
		text, err = os.ReadFile(file)
	}
	if err != nil {
		return "", fault.Wrap(err, fault.InvalidRequest, "Cannot read the key from %s.", file)
	}
	return roster.KeySum(strings.TrimSpace(string(text))), nil
}
