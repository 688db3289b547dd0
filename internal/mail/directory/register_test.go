package directory_test

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"

	"signalbox/internal/mail"
	"signalbox/internal/mail/directory"
	"signalbox/internal/mail/mailtest"
	"signalbox/internal/roster"
	"signalbox/internal/store/storetest"
)

// TestWhoMayRegister is a row for each mode and what a newcomer brings.
func TestWhoMayRegister(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, address string) {
		for _, mode := range directory.Modes {
			t.Run(mode, func(t *testing.T) { whoMayRegister(t, address, mode) })
		}
	})
}

func whoMayRegister(t *testing.T, address, mode string) {
	n := mailtest.Start(t, address, func(o *mail.Options) { o.Registration = mode })
	tenant := "tenant-" + mode
	if err := n.Roster.AddWorkspace(t.Context(), roster.Identity{}, tenant); err != nil {
		t.Fatal(err)
	}
	_, owner, err := n.Roster.AddUser(t.Context(), roster.Identity{}, roster.NewUser{Name: "owner", Workspace: tenant})
	if err != nil {
		t.Fatal(err)
	}
	operator, _ := n.Operator("op-" + mode)
	invite, err := n.Roster.MakeInvite(t.Context(), roster.Identity{}, roster.NewInvite{Workspace: tenant, Uses: 1})
	if err != nil {
		t.Fatal(err)
	}
	allowed := map[string][]string{
		"nothing": {directory.Open}, "owner": directory.Modes, "operator": directory.Modes,
		"proof": {directory.Open, directory.ByProof}, "invite": {directory.Open, directory.ByInvite},
	}
	before := head(n)
	for _, brings := range []string{"nothing", "owner", "operator", "proof", "invite", "invite again", "somewhere else"} {
		name := strings.ReplaceAll(brings, " ", "-")
		key, more, want, into := "", "", 401, tenant
		switch brings {
		case "owner":
			key = owner.Secret
		case "operator":
			key = operator
		case "proof":
			more = "proof"
		case "invite", "invite again":
			more = fmt.Sprintf(`,"invite_code":%q`, invite.Code)
		case "somewhere else":
			key, into = owner.Secret, "default"
		}
		if slices.Contains(allowed[brings], mode) {
			want = 201
		}
		if brings == "somewhere else" {
			want = 403
		}
		if status := registerWith(n, key, name, into, more); status != want {
			t.Errorf("%s: %d, want %d", brings, status, want)
		}
		if want != 201 && head(n) != before {
			t.Errorf("%s was refused and is in the ledger", brings)
		}
		before = head(n)
	}
	n.WantClean()
}

// registerWith registers a new agent with what it brings, and says how that went.
func registerWith(n *mailtest.Node, key, name, tenant, more string) int {
	n.T.Helper()
	_, private, _ := ed25519.GenerateKey(nil)
	if more == "proof" {
		at := n.Now().Unix()
		text := fmt.Sprintf("amp-register\nsignalbox.local\n%s@%s.signalbox.local\n%d", name, tenant, at)
		more = fmt.Sprintf(`,"proof":%q,"proof_timestamp":%d`,
			base64.StdEncoding.EncodeToString(ed25519.Sign(private, []byte(text))), at)
	}
	status, _ := n.Call(key, "POST /v1/register", mailtest.Registration(name, tenant, private, more), nil)
	return status
}

func head(n *mailtest.Node) int64 {
	n.T.Helper()
	seq, err := n.Ledger.Head(context.Background())
	if err != nil {
		n.T.Fatal(err)
	}
	return seq
}
