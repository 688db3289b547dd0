package engine

import (
	"slices"
	"strings"
)

// ownPrefix is what all variables of Signalbox begin with: its settings, an operator's token, an agent's key.
const ownPrefix = "SIGNALBOX_"

// commonVariables are what every CLI needs of the environment of a server that starts it: where things are,
// who the user is, the language, and the way to the network. A name that ends with * stands for all that
// begin with it.
var commonVariables = []string{
	"PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "COLORTERM", "TZ", "LANG", "LANGUAGE", "LC_*", "TMPDIR", "XDG_*",
	"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy",
	"SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS",
}

// providerVariables are the keys of model providers, for CLIs that talk to any of them.
var providerVariables = []string{
	"ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GENERATIVE_AI_API_KEY",
	"OPENROUTER_API_KEY",
}

// Listed is the part of an environment that a run of a server gets (RUN-19): what every CLI needs, what this one
// does, and what runs.ENGINE.env names. Nothing else, so no secret of the server, under whatever name.
func (e *Engine) Listed(all []string, s Settings) []string {
	lists := [][]string{commonVariables, e.needs, s.Env}
	return slices.DeleteFunc(slices.Clone(all), func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		if strings.HasPrefix(name, ownPrefix) {
			return true // whatever a list says
		}
		return !slices.ContainsFunc(lists, func(list []string) bool { return slices.ContainsFunc(list, matches(name)) })
	})
}

// matches reports whether a name is the one in a list.
func matches(name string) func(string) bool {
	return func(listed string) bool {
		prefix, all := strings.CutSuffix(listed, "*")
		return listed == name || all && strings.HasPrefix(name, prefix)
	}
}

// personal are the variables of Signalbox that a person's run keeps: where hooks find the server, and for whom they ask.
var personal = []string{
	"SIGNALBOX_DATA", "SIGNALBOX_SERVER", "SIGNALBOX_KEY", "SIGNALBOX_USER", "SIGNALBOX_DELEGATION",
	"SIGNALBOX_DELEGATION_SERVER",
}

// Personal is the environment of a person whose run it is, without what is Signalbox's but for how hooks
// find their server, and for whom they ask: an operator's token would let the agent approve its own gates.
func Personal(all []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		kept := slices.Contains(personal, name)
		return strings.HasPrefix(name, ownPrefix) && !kept
	})
}

// IsVariable reports whether a list may have a name: that of a variable, or its beginning with a *, and none
// of Signalbox.
func IsVariable(name string) bool {
	plain := strings.TrimSuffix(name, "*")
	odd := strings.IndexFunc(plain, func(r rune) bool {
		return r != '_' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	})
	return plain != "" && odd < 0 && !strings.HasPrefix(name, ownPrefix)
}
