package cli

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"signalbox/internal/fault"
	"signalbox/internal/mail/mailbox"
)

// mailCommands are the commands of an agent that has mail, on its own folder.
type mailCommands struct {
	*app
	where mailbox.Where
}

func newMail(a *app) *cobra.Command {
	m := &mailCommands{app: a}
	c := group("mail", "Send and receive mail as an agent (AMP v0.1.2), with any provider",
		m.newInit(), m.newRegister(), m.newStatus(), m.newSend(), m.newFetch(), m.newInbox(), m.newRead(), m.newReply(), m.newRemove(), m.newDownload(), m.newRotate(), m.newTrust(), m.newBus())
	c.Long = c.Short + ".\n\nThe agent's keys, addresses and messages are files in ~/.agent-messaging, which other\nclients of the protocol share. With several agents there, --agent or CLAUDE_AGENT_NAME\nsays which; --dir or AMP_DIR names a folder of its own."
	flags := c.PersistentFlags()
	flags.StringVar(&m.where.Agent, "agent", "", "the agent's name (CLAUDE_AGENT_NAME)")
	flags.StringVar(&m.where.Dir, "dir", "", "the agent's own folder (AMP_DIR)")
	return c
}

func (m *mailCommands) open() (*mailbox.Box, error) {
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

func (m *mailCommands) newInit() *cobra.Command {
	c := &cobra.Command{Use: "init [NAME]", Short: "Make an agent's folder with a pair of keys", Args: atMost(1, "at most one NAME")}
	name := c.Flags().StringP("name", "n", "", "the agent's name")
	tenant := c.Flags().StringP("tenant", "t", "", "the tenant to register with")
	c.RunE = func(_ *cobra.Command, args []string) error {
		b, err := m.init(cmp.Or(strings.Join(args, ""), *name), *tenant)
		if err != nil {
			return err
		}
		return m.show(identityOf(b), func(w io.Writer) {
			_, _ = fmt.Fprintf(w, "Made the agent %s, whose key is %s.\nGet it an address with `%s register`.\n", b.Name, b.Fingerprint(), m.as(b))
		})
	}
	return m.withJSON(c)
}

func (m *mailCommands) init(name, tenant string) (*mailbox.Box, error) {
	where, err := m.where.FromEnvironment()
	if err != nil {
		return nil, err
	}
	if name = cmp.Or(name, m.where.Agent, os.Getenv("CLAUDE_AGENT_NAME")); name == "" && where.Dir != "" {
		name = filepath.Base(where.Dir)
	}
	if name == "" {
		return nil, usage("Say what the agent is called, as in `signalbox mail init my-agent`.")
	}
	return mailbox.Init(where, name, tenant)
}

func (m *mailCommands) newRegister() *cobra.Command {
	c := &cobra.Command{
		Use: "register [NAME]", Short: "Get the agent an address with a provider",
		Long: "Registers the agent with the server that --server or the data folder names, or with the\nprovider in --provider. An agent that has no folder yet gets one.",
		Args: atMost(1, "at most one NAME"),
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
	c.RunE = func(c *cobra.Command, args []string) error {
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
		return m.show(r, func(w io.Writer) {
			_, _ = fmt.Fprintf(w, "%s is %s now.\nSend with `%s send ADDRESS SUBJECT TEXT`, and receive with `%[3]s fetch`.\n", b.Name, r.Address, m.as(b))
		})
	}
	return m.withJSON(c)
}

// provider is the address to register with.
func (m *mailCommands) provider(domain string) (string, error) {
	if domain != "" && m.server == "" {
		return "https://" + domain, nil
	}
	if elsewhere := os.Getenv("AMP_MAESTRO_URL"); elsewhere != "" && m.server == "" && os.Getenv("SIGNALBOX_SERVER") == "" {
		return elsewhere, nil
	}
	return m.address()
}

// as is how a command says which agent it is for, if there are several.
func (m *mailCommands) as(b *mailbox.Box) string {
	switch {
	case m.where.Dir != "":
		return "signalbox mail --dir " + m.where.Dir
	case m.where.Agent != "" && filepath.Base(b.Dir) != ".agent-messaging":
		return "signalbox mail --agent " + b.Name
	}
	return "signalbox mail"
}

// openOrInit is the agent's folder, made if it is not there.
func (m *mailCommands) openOrInit(name, tenant string) (*mailbox.Box, error) {
	if name != "" && m.where.Dir == "" && os.Getenv("AMP_DIR") == "" {
		m.where.Agent = strings.ToLower(name)
	}
	b, err := m.open()
	switch {
	case fault.Is(err, fault.NotFound):
		return m.init(name, tenant)
	case err == nil && name != "" && !strings.EqualFold(b.Name, name):
		return nil, usage("The folder %s is that of %s.", b.Dir, b.Name)
	}
	return b, err
}

// mailStatus is what `mail status` prints.
type mailStatus struct {
	identity
	Unread        int                 `json:"unread"`
	Messages      int                 `json:"messages"`
	Damaged       []string            `json:"damaged,omitempty"`
	Registrations []mailboxWithServer `json:"registrations"`
}

type mailboxWithServer struct {
	mailbox.Registration
	Reachable bool   `json:"reachable"`
	Waiting   int    `json:"waiting"`
	Error     string `json:"error,omitempty"`
}

func (m *mailCommands) newStatus() *cobra.Command {
	c := &cobra.Command{Use: "status", Short: "Show who the agent is, its addresses, and what waits for it", Args: exactly(0, "no arguments")}
	c.RunE = func(c *cobra.Command, _ []string) error {
		b, err := m.open()
		if err != nil {
			return err
		}
		messages, damaged, err := b.List(mailbox.Inbox)
		if err != nil {
			return err
		}
		s := mailStatus{identity: identityOf(b), Messages: len(messages), Damaged: damaged, Registrations: []mailboxWithServer{}}
		for i := range messages {
			if !messages[i].Read {
				s.Unread++
			}
		}
		for i := range b.Registrations {
			r := mailboxWithServer{Registration: b.Registrations[i]}
			if r.Waiting, err = b.Waiting(c.Context(), &b.Registrations[i]); err != nil {
				r.Error = fault.From(err).Message
			}
			r.Reachable = err == nil
			s.Registrations = append(s.Registrations, r)
		}
		return m.show(s, s.print)
	}
	return m.withJSON(c)
}

func (s mailStatus) print(w io.Writer) {
	_, _ = fmt.Fprintf(w, "agent        %s\nfolder       %s\nfingerprint  %s\ninbox        %d unread of %d\n", s.Name, s.Dir, s.Fingerprint, s.Unread, s.Messages)
	for _, path := range s.Damaged {
		_, _ = fmt.Fprintf(w, "damaged      %s\n", printable(path))
	}
	rows := make([][]string, len(s.Registrations))
	for i, r := range s.Registrations {
		rows[i] = []string{r.Address, r.Provider, fmt.Sprint(r.Waiting), "reachable"}
		if !r.Reachable {
			rows[i][2], rows[i][3] = "?", r.Error
		}
	}
	_, _ = fmt.Fprintln(w)
	table(w, "It has no address yet. Get it one with `signalbox mail register`.", []string{"ADDRESS", "PROVIDER", "WAITING", "STATE"}, rows)
}

func (m *mailCommands) newTrust() *cobra.Command {
	c := &cobra.Command{
		Use: "trust ADDRESS", Short: "Believe a sender that has come with another key than it had", Args: exactly(1, "ADDRESS"),
		Long: "The key of a sender is remembered from its first message on, and mail that is signed with\nanother is untrusted. When the sender tells you, by another way, that it has changed its\nkey, this takes the new one; mail that comes from then on is believed.",
	}
	c.RunE = func(_ *cobra.Command, args []string) error {
		b, err := m.open()
		if err != nil {
			return err
		}
		t, err := b.Accept(args[0])
		if err != nil {
			return err
		}
		return m.show(t, func(w io.Writer) {
			_, _ = fmt.Fprintf(w, "The key of %s is %s now; it was %s.\n", printable(t.Address), t.Now, t.Before)
		})
	}
	return m.withJSON(c)
}

func (m *mailCommands) newRotate() *cobra.Command {
	c := &cobra.Command{
		Use: "rotate", Short: "Give the agent new keys, and tell its providers", Args: exactly(0, "no arguments"),
		Long: "Makes a new pair of keys, proves to every provider with the old key that the new one is\nthe agent's, and uses it from then on. If a provider cannot be reached, run it again later.",
	}
	api := c.Flags().Bool("api-key", false, "get new API keys instead; the old ones work for some time")
	c.RunE = func(c *cobra.Command, _ []string) error {
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
		return m.show(identityOf(b), func(w io.Writer) {
			if *api {
				_, _ = fmt.Fprintf(w, "%s has new API keys.\n", b.Name)
				return
			}
			_, _ = fmt.Fprintf(w, "The key of %s is %s now.\n", b.Name, b.Fingerprint())
		})
	}
	return m.withJSON(c)
}
