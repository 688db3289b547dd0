package facts

import (
	"slices"
	"strings"
)

// ToolClasses are the classes that the tables have for each tool.
func ToolClasses() map[string][]Does {
	all := map[string][]Does{}
	for _, s := range sources {
		for name, does := range s.tools {
			if name = strings.ToLower(name); !slices.Contains(all[name], does) {
				all[name] = append(all[name], does)
			}
		}
	}
	return all
}
