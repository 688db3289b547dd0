package kin

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"signalbox/internal/alarm"
	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// Watch is what is looked at beside processes. Fields that are nil or empty are not looked at.
type Watch struct {
	Host string // this machine, as hooks that are installed name it
	// Intact says what is wrong with an installed hook, nil if nothing is.
	Intact func(Hook) error
	Config string // the file with the configuration
	// ConfigSum is the SHA-256 of that file as this start has read it, in hex, "" if there is none.
	ConfigSum string
	Socket    string // the Unix socket for agents
	// Local finds the agent of hooks that use the socket. It does not exist before the first of them
	// has called.
	Local func(context.Context) (roster.Identity, error)
	// Foreign reports whether another program has written to the database, and Check compares the
	// ledger and every table then, and stops all writes if they differ.
	Foreign func(context.Context) (bool, error)
	Check   func(context.Context) error
}

// Hook is hooks of ours in the settings of an agent CLI. `signalbox hook install` reports it, and
// `signalbox hook uninstall` that it is gone. If it is gone otherwise, that is an alarm, and its
// agent is suspended.
type Hook struct {
	Tool    string `json:"tool" example:"claude-code"`
	File    string `json:"file" doc:"the settings, as an absolute path" example:"/srv/app/.claude/settings.json"`
	Command string `json:"command" doc:"what the CLI runs"`
	Seconds int    `json:"seconds" doc:"how long the CLI waits for it"`
	Host    string `json:"host" doc:"the machine that the settings are on"`
	Agent   string `json:"agent,omitzero" doc:"the id of the agent that asks; that of the socket when absent"`

	workspace string // of the agent
}

// gone is the body of hook.removed.
type gone struct {
	Tool  string `json:"tool"`
	File  string `json:"file"`
	Host  string `json:"host"`
	Found string `json:"found,omitzero"` // what was wrong, if nobody reported that it was removed
}

// changed is the body of file.changed.
type changed struct {
	File   string `json:"file"`
	SHA256 string `json:"sha256"`
}

// watch is the state of the watch, under Kin.mu as far as nothing else is said.
type watch struct {
	hooks  []Hook
	stats  map[string]stamp
	config string // the digest of the configuration, when it was looked at last
	// confirmed is the digest that an operator has reported, or that this start has read.
	confirmed string
	// These belong to who looks: Load, and then Run.
	wrong  map[string]bool // settings that were not in order at the last look
	socket stamp
}

// stamp is what changes with a file, as far as can be told without reading it. The time of the last
// change of the file's data can be set by its owner; that of its state cannot.
type stamp struct {
	inode   uint64
	size    int64
	changed time.Time
}

// loadWatch reads which hooks are installed on this machine, and what the configuration was.
func (k *Kin) loadWatch(ctx context.Context) error {
	kinds := []string{kindInstalled, kindRemoved, kindChanged}
	for after := int64(0); ; {
		entries, err := k.Ledger.Entries(ctx, ledger.Query{Kinds: kinds, After: after, Limit: ledger.Page})
		if err != nil {
			return err
		}
		for _, e := range entries {
			after = e.Seq
			if err := k.apply(e); err != nil {
				return err
			}
		}
		if len(entries) < ledger.Page {
			k.watch.confirmed = k.Watch.ConfigSum
			return nil
		}
	}
}

// apply does what an entry says to what is watched.
func (k *Kin) apply(e ledger.Entry) error {
	switch e.Kind {
	case kindInstalled:
		var h Hook
		if err := e.Decode(&h); err != nil {
			return err
		}
		h.workspace = e.Workspace
		k.drop(h.Host, h.File)
		k.watch.hooks = append(k.watch.hooks, h)
	case kindRemoved:
		var g gone
		if err := e.Decode(&g); err != nil {
			return err
		}
		k.drop(g.Host, g.File)
	case kindChanged:
		var c changed
		if err := e.Decode(&c); err != nil {
			return err
		}
		if c.File == k.Watch.Config {
			k.watch.config = c.SHA256
			if e.Actor != system {
				k.watch.confirmed = c.SHA256
			}
		}
	}
	return nil
}

func (k *Kin) drop(host, file string) {
	k.watch.hooks = slices.DeleteFunc(k.watch.hooks, func(h Hook) bool { return h.Host == host && h.File == file })
	delete(k.watch.stats, file)
}

// Hooks are the hooks that are installed, as they were reported.
func (k *Kin) Hooks() []Hook {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.watch.hooks)
}

// Install records hooks in the settings of a CLI, which are watched from now on. key is the key that
// they use, "" for the socket.
func (k *Kin) Install(ctx context.Context, by roster.Identity, h Hook, key string) (Hook, error) {
	if err := wire.Unconfined(ctx, "The hooks on a machine are those of"); err != nil {
		return h, err
	}
	if h.Tool == "" || h.File == "" || h.Command == "" || h.Host == "" {
		return h, fault.New(fault.InvalidPayload, "A hook has the fields tool, file, command and host.")
	}
	workspace := roster.DefaultWorkspace
	if h.Agent = ""; key != "" {
		who, err := k.Roster.Authenticate(ctx, key)
		if err != nil {
			return h, err
		}
		h.Agent, workspace = who.ID, who.Workspace
	}
	return h, k.note(ctx, ledger.Event{
		Workspace: workspace, Kind: kindInstalled, Actor: by.Actor(), Subject: h.File, Body: h,
	})
}

// Uninstall records that an operator takes hooks out of the settings of a CLI.
func (k *Kin) Uninstall(ctx context.Context, by roster.Identity, host, file string) error {
	if err := wire.Unconfined(ctx, "The hooks on a machine are those of"); err != nil {
		return err
	}
	i := slices.IndexFunc(k.Hooks(), func(h Hook) bool { return h.Host == host && h.File == file })
	if i < 0 {
		return fault.New(fault.NotFound, "No hooks were reported in %.200q on %.100q.", file, host)
	}
	return k.note(ctx, ledger.Event{
		Kind: kindRemoved, Actor: by.Actor(), Subject: file, Body: gone{Tool: k.Hooks()[i].Tool, File: file, Host: host},
	})
}

// ExpectConfig records that an operator is about to change the configuration file, and to what. That is no
// alarm then.
func (k *Kin) ExpectConfig(ctx context.Context, by roster.Identity, sum string) error {
	if err := wire.Unconfined(ctx, "The configuration is that of"); err != nil {
		return err
	}
	sum = strings.ToLower(sum)
	if digest, err := hex.DecodeString(sum); sum != "" && (err != nil || len(digest) != sha256.Size) {
		return fault.New(fault.InvalidPayload,
			"sha256 is the SHA-256 of the whole file, 64 hex digits, or empty when there is none.").About("sha256")
	}
	file := k.Watch.Config
	return k.note(ctx, ledger.Event{Kind: kindChanged, Actor: by.Actor(), Subject: file, Body: changed{file, sum}})
}

// Confirmed reports whether a configuration file with this digest may take effect: an operator has reported these
// bytes, or the server has started with them. Another one is perhaps an agent's.
func (k *Kin) Confirmed(sum string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return sum == k.watch.confirmed
}

// note appends an entry, with more in the same transaction, and does what it says.
func (k *Kin) note(ctx context.Context, ev ledger.Event, more ...alarm.Alarm) error {
	var seq int64
	err := k.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		seq = tx.Append(ev)
		for _, a := range more {
			if err := alarm.Raise(tx, a); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	e, err := k.Ledger.Entry(ctx, seq)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.apply(e)
}

// stamped is the stamp of a file when it was in order last, and stamp remembers one.
func (k *Kin) stamped(file string) stamp {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.watch.stats[file]
}

func (k *Kin) stamp(file string, s stamp) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.watch.stats[file] = s
}

// watchFiles looks once at everything that an agent could change behind our back.
func (k *Kin) watchFiles(ctx context.Context) {
	for _, look := range []func(context.Context) error{k.watchHooks, k.watchConfig, k.watchSocket, k.watchDatabase} {
		if err := look(ctx); err != nil && ctx.Err() == nil {
			k.Log.Error("cannot look at what agents must not change", "error", err.Error())
		}
	}
}

// watchHooks raises an alarm for hooks that somebody has taken out or changed, and suspends their agent.
func (k *Kin) watchHooks(ctx context.Context) error {
	for _, h := range k.Hooks() {
		if h.Host != k.Watch.Host || k.Watch.Intact == nil {
			continue
		}
		now := stampOf(h.File)
		if now != (stamp{}) && k.stamped(h.File) == now {
			continue
		}
		wrong := k.Watch.Intact(h)
		if wrong == nil {
			k.stamp(h.File, now)
			delete(k.watch.wrong, h.File)
			continue
		}
		// An install is reported before it is written, so that the second look counts.
		if !k.watch.wrong[h.File] {
			k.watch.wrong[h.File] = true
			continue
		}
		delete(k.watch.wrong, h.File)
		workspace, agent, err := k.suspend(ctx, h)
		if err != nil {
			return err
		}
		detail := fmt.Sprintf("%s: %s. Nobody reported that with `signalbox hook uninstall`. The agent is suspended. If "+
			"you did this, resume it with `signalbox agents resume`; if not, look at what the agent did, and install the hooks again "+
			"with `signalbox hook install %s`.", h.File, wrong, h.Tool)
		err = k.note(ctx, ledger.Event{
			Workspace: workspace, Kind: kindRemoved, Actor: system, Subject: h.File,
			Body: gone{h.Tool, h.File, h.Host, wrong.Error()},
		}, alarm.Alarm{
			Workspace: workspace, Kind: "hooks_changed", Agent: agent, Detail: detail,
			Title: "Hooks were taken out of the settings of " + h.Tool + ", or changed",
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// suspend suspends the agent of hooks.
func (k *Kin) suspend(ctx context.Context, h Hook) (workspace, agent string, err error) {
	who := roster.Identity{Workspace: roster.DefaultWorkspace}
	if h.Agent != "" {
		who, err = k.Roster.ByID(ctx, h.workspace, h.Agent)
	} else if k.Watch.Local != nil {
		who, err = k.Watch.Local(ctx)
	}
	if fault.Is(err, fault.NotFound) {
		return roster.DefaultWorkspace, "", nil // it never called, or was removed
	}
	if err == nil && who.ID != "" {
		_, err = k.Roster.Suspend(ctx, roster.Identity{}, who.Workspace, who.ID,
			"The hooks by which it asks were taken out or changed.", time.Time{})
	}
	return who.Workspace, who.ID, err
}

// watchConfig raises an alarm when the configuration is not what it was: the next start reads it.
func (k *Kin) watchConfig(ctx context.Context) error {
	file := k.Watch.Config
	now := stampOf(file)
	if file == "" || k.stamped(file) == now {
		return nil
	}
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	sum := ""
	if err == nil {
		digest := sha256.Sum256(text)
		sum = hex.EncodeToString(digest[:])
	}
	k.stamp(file, now)
	k.mu.Lock()
	before := k.watch.config
	k.mu.Unlock()
	if sum == before {
		return nil
	}
	var alarms []alarm.Alarm
	if before != "" {
		alarms = []alarm.Alarm{{
			Kind: "config_changed", Title: "The configuration file was changed",
			Detail: file + " is not what it was. The server reads it when it starts, and when somebody confirms it. If nobody of you changed it, look at it " +
				"before you start the server again, or confirm it with `signalbox config reload`.",
		}}
	}
	return k.note(ctx, ledger.Event{
		Kind: kindChanged, Actor: system, Subject: file, Body: changed{file, sum},
	}, alarms...)
}

// watchSocket raises an alarm when something else has taken the place of the socket.
func (k *Kin) watchSocket(ctx context.Context) error {
	if k.Watch.Socket == "" {
		return nil
	}
	now := stampOf(k.Watch.Socket)
	before := k.watch.socket
	k.watch.socket = now
	if before == (stamp{}) || before.inode == now.inode {
		return nil
	}
	return k.Alarms.Raise(ctx, alarm.Alarm{
		Kind: "socket_replaced", Title: "The socket by which agents ask was replaced",
		Detail: k.Watch.Socket + " is not the socket of this server any more. Agents that use it ask somebody else, or " +
			"nobody. Look at what was done to it, and start the server again.",
	})
}

// watchDatabase raises an alarm when another program has written to the database, and compares all of
// it with the ledger.
func (k *Kin) watchDatabase(ctx context.Context) error {
	if k.Watch.Foreign == nil {
		return nil
	}
	foreign, err := k.Watch.Foreign(ctx)
	if err != nil || !foreign {
		return err
	}
	k.Log.Error("another program has written to the database")
	err = k.Alarms.Raise(ctx, alarm.Alarm{
		Kind: "foreign_write", Title: "Another program has written to the database",
		Detail: "Only the server writes to its database. The tables are compared with the ledger now; if they differ, the " +
			"server takes no writes any more, and agents are refused. Find out which program it was.",
	})
	if err != nil {
		return err
	}
	return k.Watch.Check(ctx)
}
