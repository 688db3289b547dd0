package hook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"signalbox/internal/cli/api"
	"signalbox/internal/fault"
	"signalbox/internal/kin"
)

// server is the server of this machine that watches settings, nil if hooks use one elsewhere or
// this user has no operator's token.
func (f *asker) server() *api.Client {
	cl, err := f.Client()
	if err != nil {
		return nil
	}
	at, err := url.Parse(cl.Base)
	if err != nil {
		return nil
	}
	if ip := net.ParseIP(at.Hostname()); at.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil
	}
	return cl
}

// reportInstall tells the server which hooks it should watch, before they are written: an agent that
// installs hooks of its own is refused here. It returns how to take that back.
func (f *asker) reportInstall(ctx context.Context, t *Tool, file string, e Entry) (undo func(), err error) {
	cl := f.server()
	if cl == nil {
		return func() {}, nil
	}
	report := kin.NewHook{Hook: kin.Hook{
		Tool: t.Name, File: file, Command: e.Command, Seconds: int(e.Within.Seconds()), Host: kin.Host(),
	}}
	if f.keyFile != "" {
		text, err := os.ReadFile(f.keyFile)
		if err != nil { // without the key nobody knows whose hooks these are
			f.Err.Print("%s cannot be read, so the server does not watch these settings.", f.keyFile)
			return func() {}, nil //nolint:nilerr // the hooks work all the same
		}
		report.Key = strings.TrimSpace(string(text))
	}
	err = cl.Call(ctx, api.Put("/ops/hooks", report), nil)
	if fault.Is(err, api.Unreachable) {
		f.Err.Print("The server does not answer, so it does not watch these settings. Install the hooks again once it does.")
		err = nil
	}
	return func() { _ = cl.Call(ctx, hookGone(file), nil) }, err
}

// reportUninstall tells the server that hooks are about to be taken out. Without that, it would raise
// an alarm.
func (f *asker) reportUninstall(ctx context.Context, file string) error {
	cl := f.server()
	if cl == nil {
		return nil
	}
	err := cl.Call(ctx, hookGone(file), nil)
	switch {
	case fault.Is(err, fault.NotFound): // they were never reported
		return nil
	case fault.Is(err, api.Unreachable):
		f.Err.Print("The server does not answer. If it watches these settings, it raises an alarm when it starts.")
		return nil
	}
	return err
}

func hookGone(file string) api.Request {
	return api.Delete(api.Query{"file": file, "host": kin.Host()}.At("/ops/hooks"))
}

// realFile is the file of settings as the server should look at it.
func realFile(file string) (string, error) {
	if at, err := filepath.EvalSymlinks(file); err == nil {
		file = at
	}
	return filepath.Abs(file)
}

// Intact says what is wrong with hooks that were installed, nil if nothing is. Settings that this user
// may not read are not looked at.
func Intact(h kin.Hook) error {
	t := Named(h.Tool)
	if t == nil {
		return nil
	}
	text, err := os.ReadFile(h.File)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return nil
	case err != nil:
		return errors.New("the settings are gone")
	}
	if err := t.intact(text, h); err != nil {
		return err
	}
	local := filepath.Join(filepath.Dir(h.File), "settings.local.json")
	if more, err := os.ReadFile(local); err == nil && t.Name == "claude-code" {
		if root, err := t.read(more); err == nil && disabled(more, root) {
			return errors.New("the hooks are switched off in " + local)
		}
	}
	return nil
}

// intact compares settings with what Add would have put there.
func (t *Tool) intact(text []byte, h kin.Hook) error {
	root, err := t.read(text)
	if err != nil {
		return fmt.Errorf("the settings cannot be read: %w", err)
	}
	if disabled(text, root) {
		return errors.New("the hooks are switched off")
	}
	e := Entry{Command: h.Command, Within: time.Duration(h.Seconds) * time.Second}
	if t.delegate {
		want := delegateScript(e)
		e.Command = filepath.Join(filepath.Dir(h.File), DelegateFile)
		if script, _ := os.ReadFile(e.Command); !bytes.Equal(script, want) {
			return errors.New("the delegate was changed")
		}
	}
	own, err := t.Add(nil, e)
	if err != nil {
		return err
	}
	want, err := t.read(own)
	if err != nil {
		return err
	}
	if t.delegate { // the first rule that matches decides
		mine, _ := want.member(permissionsKey)
		list, _ := root.member(permissionsKey)
		if len(list.items) == 0 || !same(mine.items[0].value, own, list.items[0].value, text) {
			return errors.New("the rule that asks Signalbox is not the first one")
		}
		return nil
	}
	hooks, _ := root.member("hooks")
	mine, _ := want.member("hooks")
	for _, event := range mine.items {
		list, _ := hooks.member(event.name)
		found := false
		for _, one := range list.items {
			found = found || same(event.value.items[0].value, own, one.value, text)
		}
		if !found {
			return fmt.Errorf("the hook for %s is gone or was changed", event.name)
		}
	}
	return nil
}

// disabled reports whether settings switch hooks off as a whole.
func disabled(text []byte, root node) bool {
	all, _ := root.member("disableAllHooks")
	switched, _ := root.member("hooksConfig")
	on, _ := switched.member("enabled")
	return string(text[all.start:all.end]) == "true" || string(text[on.start:on.end]) == "false"
}

// same reports whether two values are equal, however they are laid out.
func same(a node, inA []byte, b node, inB []byte) bool {
	if a.kind != b.kind || len(a.items) != len(b.items) {
		return false
	}
	if a.kind != '{' && a.kind != '[' {
		return a.text(inA) == b.text(inB) && (a.kind == '"' || bytes.Equal(inA[a.start:a.end], inB[b.start:b.end]))
	}
	for i, x := range a.items {
		y := b.items[i].value
		if a.kind == '{' {
			y, _ = b.member(x.name)
		}
		if !same(x.value, inA, y, inB) {
			return false
		}
	}
	return true
}
