package server

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"signalbox/internal/oidc"
)

// userSettings are the keys about users.
func userSettings() []Setting {
	return []Setting{{
		Key: "users.oidc", Default: "",
		Meaning: "issuers whose tokens prove on whose behalf an agent acts, with commas between: " +
			"issuer=https://accounts.example.com audience=signalbox, and if need be workspace=default, user=email, " +
			"create=true and scopes_claim=scope", List: true,
		set: func(c *Config, v string) (err error) { c.UserIssuers, err = oidc.ParseIssuers(v); return err },
		get: func(c *Config) string { return oidc.FormatIssuers(c.UserIssuers) },
	}}
}

// itemText is an item of a list in the file: a text, or for people who like it better a mapping, which is the same as
// words name=value. A mapping inside of it has its own names: claims: {user: email} is user=email.
func itemText(n *yaml.Node) (string, error) {
	if n.Kind != yaml.MappingNode {
		var text string
		err := n.Decode(&text)
		return text, err
	}
	var words []string
	for i := 0; i < len(n.Content); i += 2 {
		name, value := n.Content[i].Value, n.Content[i+1]
		if value.Kind == yaml.MappingNode {
			inner, err := itemText(value)
			if err != nil {
				return "", err
			}
			words = append(words, inner)
			continue
		}
		if value.Kind != yaml.ScalarNode || strings.ContainsAny(value.Value, ", \t\n") {
			return "", fmt.Errorf("%s should be one word", name)
		}
		words = append(words, name+"="+value.Value)
	}
	return strings.Join(words, " "), nil
}
