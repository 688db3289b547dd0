package measure

import (
	"regexp"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

var described = regexp.MustCompile(`fqName: "([^"]+)".*variableLabels: \{([^}]*)\}`)

// Described are the labels of every metric, by its name.
func Described(m *Metrics) map[string][]string {
	to := make(chan *prometheus.Desc)
	go func() {
		defer close(to)
		m.registry.Describe(to)
		(&Numbers{}).Describe(to)
	}()
	all := map[string][]string{}
	for d := range to {
		if found := described.FindStringSubmatch(d.String()); found != nil {
			all[found[1]] = strings.FieldsFunc(found[2], func(r rune) bool { return r == ',' || r == ' ' })
		}
	}
	return all
}
