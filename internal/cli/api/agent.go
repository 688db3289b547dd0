package api

import (
	"context"
	"crypto/rand"
	"net"
	"net/url"
	"strings"
	"time"

	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// AgentPath is where the operators' API has an agent.
func AgentPath(name, workspace string) string {
	return InWorkspace(Path("/ops/agents/{}", name), workspace)
}

// InWorkspace adds the workspace to a path, if there is one.
func InWorkspace(path, workspace string) string {
	if workspace == "" {
		return path
	}
	before := "?"
	if strings.Contains(path, "?") {
		before = "&"
	}
	return path + before + "workspace=" + url.QueryEscape(workspace)
}

// IsLoopback reports whether a host is this machine and no other can reach it.
func IsLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// LentAgent is an agent that exists for the time of one command. GiveBack removes it and
// has to be called in every case; it also works after Ctrl-C.
type LentAgent struct {
	Name, Key string
	GiveBack  func(context.Context) error
}

// Lend makes an agent without a rate limit, whose name is the prefix and random letters,
// so that two commands at once do not collide. If the limit cannot be lifted, the agent
// is removed again.
func (c *Client) Lend(ctx context.Context, prefix string) (LentAgent, error) {
	in := roster.NewAgent{Name: prefix + strings.ToLower(rand.Text()[:8])}
	var added roster.AddedAgent
	if err := c.Call(ctx, Post("/ops/agents", in), &added); err != nil {
		return LentAgent{}, err
	}
	lent := LentAgent{in.Name, added.Keys[roster.SignalKey], func(ctx context.Context) error {
		// Also when the command was stopped by Ctrl-C.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		return c.Call(ctx, Delete(AgentPath(in.Name, "")), nil)
	}}
	if err := c.Unlimit(ctx, in.Name, ""); err != nil {
		_ = lent.GiveBack(ctx)
		return LentAgent{}, err
	}
	return lent, nil
}

// Unlimit frees an agent of its rate limit.
func (c *Client) Unlimit(ctx context.Context, name, workspace string) error {
	return c.Call(ctx, Patch(AgentPath(name, workspace), roster.AgentChange{RateLimit: wire.Raw("0")}), &roster.Agent{})
}
