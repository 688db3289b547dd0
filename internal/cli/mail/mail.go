// Package mail is `signalbox mail`: what an agent does with its mail (AMP v0.1.2), on its own folder
// and with any provider. It stands on mail/mailbox, which has the folder, the keys and the protocol;
// here are flags and what is printed. It does not call the operators' API.
package mail

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"signalbox/internal/cli/command"
	"signalbox/internal/cli/output"
	"signalbox/internal/fault"
	"signalbox/internal/mail/mailbox"
)

// commands are the commands of an agent that has mail, on its own folder.
type commands struct {
	*command.App
	where mailbox.Where
}

// New is the group of commands `mail`.
func New(a *command.App) *command.Command {
	m := &commands{App: a}
	c := command.Group("mail", "Send and receive mail as an agent (AMP v0.1.2), with any provider",
		m.newInit(), m.newRegister(), m.newStatus(), m.newSend(), m.newFetch(), m.newInbox(), m.newRead(), m.newReply(),
		m.newRemove(), m.newDownload(), m.newRotate(), m.newTrust(), m.newBus())
	c.Long = c.Short + ".\n\nThe agent's keys, addresses and messages are files in ~/.agent-messaging, which other\n" +
		"clients of the protocol share. With several agents there, --agent or CLAUDE_AGENT_NAME\n" +
		"says which; --dir or AMP_DIR names a folder of its own."
	flags := c.PersistentFlags()
	flags.StringVar(&m.where.Agent, "agent", "", "the agent's name (CLAUDE_AGENT_NAME)")
	flags.StringVar(&m.where.Dir, "dir", "", "the agent's own folder (AMP_DIR)")
	return c
}

func (m *commands) open() (*mailbox.Box, error) {
	where, err := m.where.FromEnvironment()
	if err != nil {
		return nil, err
	}
	return mailbox.Open(where)
}

// identity is what init and status print of an agent.
type identity struct {
	Name        string `json:"name"`
	Tenant      string `json:"tenant"`
	Address     string `json:"address"`
	Fingerprint string `json:"fingerprint"`
	Dir         string `json:"dir"`
}

func identityOf(b *mailbox.Box) identity {
	return identity{b.Name, b.Tenant, b.Address, b.Fingerprint(), b.Dir}
}

func (m *commands) newInit() *command.Command {
	c := &command.Command{
		Use: "init [NAME]", Short: "Make an agent's folder with a pair of keys", Args: command.AtMost(1, "at most one NAME"),
	}
	name := c.Flags().StringP("name", "n", "", "the agent's name")
	tenant := c.Flags().StringP("tenant", "t", "", "the tenant to register with")
	c.RunE = func(_ *command.Command, args []string) error {
		b, err := m.init(cmp.Or(strings.Join(args, ""), *name), *tenant)
		if err != nil {
			return err
		}
		return m.Show(identityOf(b), func(w output.Printer) {
			w.Print("Made the agent %s, whose key is %s.\nGet it an address with `%s register`.",
				b.Name, b.Fingerprint(), m.as(b))
		})
	}
	return m.WithJSON(c)
}

func (m *commands) init(name, tenant string) (*mailbox.Box, error) {
	where, err := m.where.FromEnvironment()
	if err != nil {
		return nil, err
	}
	if name = cmp.Or(name, m.where.Agent, os.Getenv("CLAUDE_AGENT_NAME")); name == "" && where.Dir != "" {
		name = filepath.Base(where.Dir)
	}
	if name == "" {
		return nil, command.Usage("Say what the agent is called, as in `signalbox mail init my-agent`.")
	}
	return mailbox.Init(where, name, tenant)
}

func (m *commands) newRegister() *command.Command {
	c := &command.Command{
		Use: "register [NAME]", Short: "Get the agent an address with a provider",
		Long: "Registers the agent with the server that --server or the data folder names, or with the\n" +
			"provider in --provider. An agent that has no folder yet gets one.",
		Args: command.AtMost(1, "at most one NAME"),
	}
	var j mailbox.Joining
	flags := c.Flags()
	name := flags.StringP("name", "n", "", "the agent's name")
	provider := flags.StringP("provider", "p", "", "the provider's domain, such as crabmail.ai")
	flags.StringVarP(&j.Tenant, "tenant", "t", "", "the tenant; the provider's own by default")
	flags.StringVarP(&j.UserKey, "user-key", "k", "", "an owner's key, uk_…")
	flags.StringVar(&j.Invite, "invite", "", "an invite code")
	flags.StringVar(&j.Alias, "alias", "", "a name for people to read")
	flags.BoolVar(&j.Again, "again", false, "get a new API key for an address that the agent has")
	c.RunE = func(c *command.Command, args []string) error {
		var err error
		if j.Server, err = m.provider(*provider); err != nil {
			return err
		}
		b, err := m.openOrInit(cmp.Or(strings.Join(args, ""), *name), j.Tenant)
		if err != nil {
			return err
		}
		r, err := b.Register(c.Context(), j)
		if err != nil {
			return err
		}
		return m.Show(r, func(w output.Printer) {
			w.Print("%s is %s now.\nSend with `%s send ADDRESS SUBJECT TEXT`, and receive with `%[3]s fetch`.",
				b.Name, r.Address, m.as(b))
		})
	}
	return m.WithJSON(c)
}

// provider is the address to register with.
func (m *commands) provider(domain string) (string, error) {
	if domain != "" && m.Server == "" {
		return "https://" + domain, nil
	}
	if elsewhere := os.Getenv("AMP_MAESTRO_URL"); elsewhere != "" && m.Server == "" &&
		os.Getenv("SIGNALBOX_SERVER") == "" {
		return elsewhere, nil
	}
	return m.Address()
}

// as is how a command says which agent it is for, if there are several.
func (m *commands) as(b *mailbox.Box) string {
	switch {
	case m.where.Dir != "":
		return "signalbox mail --dir " + m.where.Dir
	case m.where.Agent != "" && filepath.Base(b.Dir) != ".agent-messaging":
		return "signalbox mail --agent " + b.Name
	}
	return "signalbox mail"
}

// openOrInit is the agent's folder, made if it is not there.
func (m *commands) openOrInit(name, tenant string) (*mailbox.Box, error) {
	if name != "" && m.where.Dir == "" && os.Getenv("AMP_DIR") == "" {
		m.where.Agent = strings.ToLower(name)
	}
	b, err := m.open()
	switch {
	case fault.Is(err, fault.NotFound):
		return m.init(name, tenant)
	case err == nil && name != "" && !strings.EqualFold(b.Name, name):
		return nil, command.Usage("The folder %s is that of %s.", b.Dir, b.Name)
	}
	return b, err
}

// status is what `mail status` prints.
type status struct {
	identity
	Unread        int            `json:"unread"`
	Messages      int            `json:"messages"`
	Damaged       []string       `json:"damaged,omitempty"`
	Registrations []registration `json:"registrations"`
}

type registration struct {
	mailbox.Registration
	Reachable bool   `json:"reachable"`
	Waiting   int    `json:"waiting"`
	Error     string `json:"error,omitempty"`
}

func (m *commands) newStatus() *command.Command {
	c := &command.Command{
		Use: "status", Short: "Show who the agent is, its addresses, and what waits for it", Args: command.NoArguments(),
	}
	c.RunE = func(c *command.Command, _ []string) error {
		b, err := m.open()
		if err != nil {
			return err
		}
		messages, damaged, err := b.List(mailbox.Inbox)
		if err != nil {
			return err
		}
		s := status{identity: identityOf(b), Messages: len(messages), Damaged: damaged, Registrations: []registration{}}
		for i := range messages {
			if !messages[i].Read {
				s.Unread++
			}
		}
		for i := range b.Registrations {
			r := registration{Registration: b.Registrations[i]}
			if r.Waiting, err = b.Waiting(c.Context(), &b.Registrations[i]); err != nil {
				r.Error = fault.From(err).Message
			}
			r.Reachable = err == nil
			s.Registrations = append(s.Registrations, r)
		}
		return m.Show(s, s.print)
	}
	return m.WithJSON(c)
}

func (s status) print(w output.Printer) {
	w.Print("agent        %s\nfolder       %s\nfingerprint  %s\ninbox        %d unread of %d",
		s.Name, s.Dir, s.Fingerprint, s.Unread, s.Messages)
	for _, path := range s.Damaged {
		w.Print("damaged      %s", output.Printable(path))
	}
	rows := make([][]string, len(s.Registrations))
	for i, r := range s.Registrations {
		rows[i] = []string{r.Address, r.Provider, fmt.Sprint(r.Waiting), "reachable"}
		if !r.Reachable {
			rows[i][2], rows[i][3] = "?", r.Error
		}
	}
	w.Print("")
	w.Table("It has no address yet. Get it one with `signalbox mail register`.",
		[]string{"ADDRESS", "PROVIDER", "WAITING", "STATE"}, rows)
}

func (m *commands) newTrust() *command.Command {
	c := &command.Command{
		Use:   "trust ADDRESS",
		Short: "Believe a sender that has come with another key than it had", Args: command.Exactly(1, "ADDRESS"),
		Long: "The key of a sender is remembered from its first message on, and mail that is signed with\n" +
			"another is untrusted. When the sender tells you, by another way, that it has changed its\n" +
			"key, this takes the new one; mail that comes from then on is believed.",
	}
	c.RunE = func(_ *command.Command, args []string) error {
		b, err := m.open()
		if err != nil {
			return err
		}
		t, err := b.Accept(args[0])
		if err != nil {
			return err
		}
		return m.Show(t, func(w output.Printer) {
			w.Print("The key of %s is %s now; it was %s.", output.Printable(t.Address), t.Now, t.Before)
		})
	}
	return m.WithJSON(c)
}

func (m *commands) newRotate() *command.Command {
	c := &command.Command{
		Use: "rotate", Short: "Give the agent new keys, and tell its providers", Args: command.NoArguments(),
		Long: "Makes a new pair of keys, proves to every provider with the old key that the new one is\n" +
			"the agent's, and uses it from then on. If a provider cannot be reached, run it again later.",
	}
	api := c.Flags().Bool("api-key", false, "get new API keys instead; the old ones work for some time")
	c.RunE = func(c *command.Command, _ []string) error {
		b, err := m.open()
		if err != nil {
			return err
		}
		if *api {
			err = b.RotateAPIKeys(c.Context())
		} else {
			err = b.Rotate(c.Context())
		}
		if err != nil {
			return err
		}
		return m.Show(identityOf(b), func(w output.Printer) {
			if *api {
				w.Print("%s has new API keys.", b.Name)
				return
			}
			w.Print("The key of %s is %s now.", b.Name, b.Fingerprint())
		})
	}
	return m.WithJSON(c)
}
