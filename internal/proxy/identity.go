package proxy

import (
	"context"
	"net/http"
	"strings"

	"signalbox/internal/fault"
	"signalbox/internal/refusal"
	"signalbox/internal/roster"
)

// isAgentKey reports whether a key has the form of an agent's key of Signalbox. Such a key is never
// sent on, even if it turns out to be unknown (PRX-6).
func isAgentKey(key string) bool {
	return strings.HasPrefix(key, "rs-amp-") || strings.HasPrefix(key, "amp_live_sk_")
}

// caller is the agent that calls, and where the provider's key comes from.
type caller struct {
	who     roster.Identity
	vaulted bool // from the vault; else the client sent it
}

// The headers in which clients send their key (PRX-5).
const (
	bearer = "Authorization"
	apiKey = "X-Api-Key"
)

// identify finds the agent by its key in the path, by its key in place of the provider's, or by the
// provider's key (PRX-4). It removes every key of ours from the header. If that leaves none, it
// adds the provider's from the vault, in the header that the client used: SDKs of different
// years use different ones, and the provider may treat them differently.
func (p *Proxy) identify(ctx context.Context, header http.Header, provider, inPath string) (c caller, err error) {
	ours, style := inPath, ""
	for _, name := range []string{apiKey, bearer} { // the first is preferred, as the provider does
		key := keyIn(header, name)
		if key == "" || !isAgentKey(key) {
			continue
		}
		if ours == "" {
			ours = key
		}
		if style == "" {
			style = name
		}
		header.Del(name)
	}
	theirs := keyIn(header, apiKey)
	if theirs == "" {
		theirs = keyIn(header, bearer)
	}
	if ours == "" {
		if theirs == "" {
			return c, refusal.NoKey(fault.New(fault.Unauthenticated,
				"There is no key. Use a key of the agent, rs-amp-…, in place of the provider's."))
		}
		if c.who, err = p.KeyOwner(ctx, roster.KeySum(theirs)); c.who.ID == "" && err == nil {
			err = refusal.Because(fault.New(fault.Unauthenticated,
				"This key is registered to no agent here. Use a key of the agent, rs-amp-…, in its "+
					"place, or in the base URL: /v1/proxy/a/rs-amp-…."), refusal.Cause{Reason: refusal.WrongKey})
		}
		return c, err
	}
	if c.who, err = p.core.Roster.Authenticate(ctx, ours); err != nil {
		return c, err
	}
	if c.who.Kind != roster.HolderAgent {
		return c, fault.New(fault.Forbidden,
			"This is the key of an %s, and models are for agents. Use an agent's key, rs-amp-….", c.who.Kind)
	}
	// The client has the provider's key itself, and ours only names the agent.
	if theirs != "" {
		return c, nil
	}
	key := p.vault.KeyFor(provider, c.who.Workspace)
	if key == "" {
		return c, fault.New(fault.Unauthenticated,
			"There is no key of the provider %s for this agent. An admin puts one into the "+
				"vault with `signalbox proxy key set %s`.", provider, provider)
	}
	c.vaulted = true
	if style == "" && provider == Anthropic {
		style = apiKey
	}
	if style == apiKey && provider == Anthropic {
		header.Set(apiKey, key)
	} else {
		header.Set(bearer, "Bearer "+key)
	}
	return c, nil
}

// keyIn is the key in one of the two headers, "" if there is none.
func keyIn(header http.Header, name string) string {
	value := header.Get(name)
	if name == bearer {
		scheme, key, _ := strings.Cut(value, " ")
		if !strings.EqualFold(scheme, "Bearer") {
			return ""
		}
		value = key
	}
	return strings.TrimSpace(value)
}

// KeyOwner is the agent that the provider's key with a KeySum is registered to, nobody if it is to none. The agent is
// looked up by name each time, so that suspending or removing it has effect at once; one that was removed and added
// again under the same name has another id, and does not inherit the key.
func (p *Proxy) KeyOwner(ctx context.Context, sum string) (who roster.Identity, err error) {
	p.mu.RLock()
	b, known := p.owners[sum]
	p.mu.RUnlock()
	if known {
		who, err = p.core.Roster.Named(ctx, b.workspace, b.name)
	}
	if fault.Is(err, fault.NotFound) || who.ID != b.id {
		return roster.Identity{}, nil
	}
	return who, err
}
