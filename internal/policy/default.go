package policy

import (
	_ "embed" // for default.yaml
	"slices"
)

//go:embed default.yaml
var defaultSource []byte

// Default is the policy of a first start, with its comments.
func Default() []byte { return slices.Clone(defaultSource) }
