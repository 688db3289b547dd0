package backup

import (
	"cmp"
	"time"

	"signalbox/internal/backup"
	"signalbox/internal/cli/command"
	"signalbox/internal/cli/output"
	"signalbox/internal/server"
)

// New is `signalbox backup`, with the commands that make keys for it.
func New(a *command.App) *command.Command {
	c := a.WithJSON(&command.Command{
		Use: "backup", Short: "Copy the ledger elsewhere, encrypted; what is there already is not written again",
		Long: `Copy the ledger elsewhere, encrypted.

The server may be running. A backup has all entries under the newest signed checkpoint, and the attachments. The
next one into the same place writes only what is new. The keys of the data folder are not in it: save them once,
to another place, with ` + "`signalbox backup keys`" + `.`,
		Example: `  signalbox backup identity --out backup-identity.txt
  signalbox backup --to /mnt/backup --recipient age1…`,
		Args: command.NoArguments(),
	})
	to := c.Flags().String("to", "", "a folder, or s3:// and the name of a bucket; backup.to when absent")
	recipients := c.Flags().StringArray("recipient", nil, "for whom it is encrypted; backup.recipients when absent")
	flags := command.AddConfigFlags(c, "db")
	c.RunE = func(c *command.Command, _ []string) error {
		config, err := flags.Load(a, c)
		if err != nil {
			return err
		}
		if len(*recipients) == 0 {
			*recipients = config.Backup.Recipients
		}
		if _, err := backup.Recipients(*recipients); err != nil {
			return err
		}
		db, err := server.OpenExisting(c.Context(), config)
		if err != nil {
			return err
		}
		defer db.Close()
		place, err := backup.Open(c.Context(), cmp.Or(*to, config.Backup.To), config.Backup.S3, true)
		if err != nil {
			return err
		}
		source, err := server.BackupSource(c.Context(), config, db)
		if err != nil {
			return err
		}
		shown := output.NewProgress(a.Err)
		made, err := backup.Make(c.Context(), source, place, *recipients, time.Now(), shown.Of("backing up"))
		shown.End()
		if err != nil {
			return err
		}
		return a.Show(made, func(w output.Printer) { printMade(w, made) })
	}
	c.AddCommand(newIdentity(a), newKeys(a))
	return c
}

func printMade(w output.Printer, made backup.Made) {
	if made.Nothing {
		w.Print("Nothing is new: backup %d has all %s entries.", made.Number, output.Thousands(made.Entries))
	} else {
		w.Print("Backup %d has %s entries and %s. Written: %s entries, %d attachments, %s bytes.", made.Number,
			output.Thousands(made.Entries), output.Count(made.Blobs, "attachment"), output.Thousands(made.Written),
			made.NewBlobs, output.Thousands(made.Bytes))
		w.Print("Root: %s", made.Root)
	}
	if made.Unsigned > 0 {
		w.Print("%s entries are younger than the newest checkpoint, and not in it. A running server signs them within a second.",
			output.Thousands(made.Unsigned))
	}
}

// newIdentity makes a pair of keys in the form of age, whose own program need not be there.
func newIdentity(a *command.App) *command.Command {
	c := a.WithJSON(&command.Command{
		Use: "identity", Short: "Make an identity that can read backups, and print its recipient",
		Long: `Make an identity of age that can read backups, and print its recipient.

Whoever has the file can read every backup for the recipient, and without it nobody can. Keep it away from the
server and from the backups. ` + "`age-keygen`" + ` makes the same.`,
		Args: command.NoArguments(),
	})
	out := c.Flags().String("out", "", "the file to write")
	c.RunE = func(*command.Command, []string) error {
		if *out == "" {
			return command.Usage("Say with --out which file the identity is written to.")
		}
		recipient, err := backup.NewIdentity(*out)
		if err != nil {
			return err
		}
		return a.Show(map[string]string{"recipient": recipient}, func(w output.Printer) {
			w.Print("%s", recipient)
			a.Err.Print("The identity is in %s. Keep it away from this machine; without it no backup can be read.", *out)
		})
	}
	return c
}

// newKeys saves the keys of the data folder apart from the backups.
func newKeys(a *command.App) *command.Command {
	c := a.WithJSON(&command.Command{
		Use: "keys", Short: "Save the keys of the data folder to one encrypted file, to be kept apart from the backups",
		Args: command.NoArguments(),
	})
	out := c.Flags().String("out", "", "the file to write")
	recipients := c.Flags().StringArray("recipient", nil, "for whom it is encrypted; backup.recipients when absent")
	flags := command.AddConfigFlags(c)
	c.RunE = func(c *command.Command, _ []string) error {
		config, err := flags.Load(a, c)
		if err != nil {
			return err
		}
		if *out == "" {
			return command.Usage("Say with --out which file the keys are written to.")
		}
		if len(*recipients) == 0 {
			*recipients = config.Backup.Recipients
		}
		to, err := backup.Recipients(*recipients)
		if err != nil {
			return err
		}
		names, err := backup.SaveKeys(config.Data, *out, to)
		if err != nil {
			return err
		}
		return a.Show(map[string][]string{"keys": names}, func(w output.Printer) {
			w.Print("Saved %s to %s. Keep it where the backups are not.", output.Count(len(names), "key"), *out)
		})
	}
	return c
}
