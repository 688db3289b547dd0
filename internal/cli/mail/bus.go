package mail

import (
	"cmp"
	"os"

	"signalbox/internal/cli/command"
	"signalbox/internal/cli/output"
	"signalbox/internal/fault"
	"signalbox/internal/mail/bus"
)

// newBus is `mail bus`, which runs until it is interrupted. With --no-mail it needs no folder of an agent;
// then the entity has to be configured.
func (m *commands) newBus() *command.Command {
	c := &command.Command{
		Use:   "bus",
		Short: "Serve the local bus, on which the processes of an agent share messages and mail", Args: command.NoArguments(),
		Long: `Serves the local bus of the protocol until it is interrupted: JSON-RPC 2.0 over a Unix
socket, one message a line. A component registers with bus.register, finds others with
bus.discover, and sends with bus.send, bus.broadcast and bus.publish. amp.send sends mail,
and mail that arrives is published to the topic amp.inbound. Settings are in bus.json;
AMP_BUS_CONFIG, AMP_BUS_SOCKET and AMP_BUS_ENTITY override them.`,
	}
	alone := c.Flags().Bool("no-mail", false, "without the gateway to mail")
	c.RunE = func(c *command.Command, _ []string) error {
		where, err := m.where.FromEnvironment()
		if err != nil {
			return err
		}
		// Opened now to fail early; the bus opens it again for every use.
		box, err := m.open()
		if err != nil && (!*alone || !fault.Is(err, fault.NotFound)) {
			return err
		}
		name := ""
		mailbox := m.open
		if box != nil {
			name = box.Name
		}
		if *alone {
			mailbox = nil
		}
		// The folder of all agents has bus.json; the agent's name is the entity by default.
		config, err := bus.Load(cmp.Or(where.Root, where.Dir), name, os.Getenv)
		if err != nil {
			return err
		}
		b := bus.New(config, mailbox)
		// Printed before Run, so that whoever starts the bus learns the path of the socket.
		if err := m.Show(map[string]string{"entity": config.Entity, "socket": config.Socket()}, func(w output.Printer) {
			w.Print("%s is starting; it ends with Control-C.", b)
		}); err != nil {
			return err
		}
		return b.Run(c.Context())
	}
	return m.WithJSON(c)
}
