package cli

import (
	"fmt"
	"io"
	"net/url"

	"github.com/spf13/cobra"

	"signalbox/internal/roster"
)

func newOwners(a *app) *cobra.Command {
	return group("owners", "The people and teams who may register agents: list, add, remove, new key",
		newOwnersLs(a), newOwnersAdd(a), newOwnersRm(a), newOwnersKey(a))
}

func newOwnersLs(a *app) *cobra.Command {
	c := a.withJSON(&cobra.Command{Use: "ls", Short: "List the owners", Args: exactly(0, "no arguments")})
	workspace := c.Flags().String("workspace", "", "only those of this workspace")
	c.RunE = func(c *cobra.Command, _ []string) error {
		var all roster.OwnerList
		if err := a.call(c.Context(), "GET", inWorkspace("/ops/owners", *workspace), nil, &all); err != nil {
			return err
		}
		return a.show(all, func(w io.Writer) {
			var rows [][]string
			for _, o := range all.Owners {
				rows = append(rows, []string{o.Name, o.Workspace, since(o.AddedAt)})
			}
			none := "There are no owners. Add one with `signalbox owners add NAME`."
			if *workspace != "" {
				none = "There are no owners in workspace " + *workspace + "."
			}
			table(w, none, []string{"NAME", "WORKSPACE", "ADDED"}, rows)
		})
	}
	return c
}

func newOwnersAdd(a *app) *cobra.Command {
	c := a.withJSON(&cobra.Command{Use: "add NAME", Short: "Add an owner and print the key, this once", Args: exactly(1, "the name of the owner")})
	workspace := workspaceFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		var added roster.AddedOwner
		if err := a.call(c.Context(), "POST", "/ops/owners", roster.NewOwner{Name: args[0], Workspace: *workspace}, &added); err != nil {
			return err
		}
		return a.show(added, func(w io.Writer) {
			_, _ = fmt.Fprintf(w, "%s\nThis is the key with which %s registers agents in workspace %s. It is shown this once.\n", added.Key, added.Owner.Name, added.Owner.Workspace)
		})
	}
	return c
}

func newOwnersRm(a *app) *cobra.Command {
	c := &cobra.Command{Use: "rm NAME", Short: "Remove an owner and their keys; their agents stay", Args: exactly(1, "the name of the owner")}
	workspace := workspaceFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := a.call(c.Context(), "DELETE", inWorkspace("/ops/owners/"+url.PathEscape(args[0]), *workspace), nil, nil); err != nil {
			return err
		}
		_, _ = fmt.Fprintf(a.out, "Removed %s and their keys. Their agents stay.\n", args[0])
		return nil
	}
	return c
}

func newOwnersKey(a *app) *cobra.Command {
	c := a.withJSON(&cobra.Command{Use: "key NAME", Short: "Make a further key for an owner and print it, this once", Args: exactly(1, "the name of the owner")})
	workspace := workspaceFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		return a.printIssued(c, inWorkspace("/ops/owners/"+url.PathEscape(args[0])+"/key", *workspace), nil, "")
	}
	return c
}
