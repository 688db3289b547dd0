package measure_test

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"signalbox/internal/server/measure"
	"signalbox/internal/testbed"
)

// keywords are words of PromQL that are neither metrics nor labels.
var keywords = []string{
	"sum", "max", "by", "rate", "increase", "topk", "histogram_quantile", "label_values", "le", "instance", "time",
}

var (
	quoted = regexp.MustCompile(`"[^"]*"|\[[0-9a-z]+\]`)
	word   = regexp.MustCompile(`[a-zA-Z_:][a-zA-Z0-9_:]*`)
)

// queries are all texts under a name in a document.
func queries(document any, names ...string) (found []string) {
	switch v := document.(type) {
	case map[string]any:
		for key, value := range v {
			if text, ok := value.(string); ok && slices.Contains(names, key) {
				found = append(found, text)
			}
			found = append(found, queries(value, names...)...)
		}
	case []any:
		for _, value := range v {
			found = append(found, queries(value, names...)...)
		}
	}
	return found
}

func TestTheDashboardOfGrafanaNamesOnlyMetricsAndLabelsThatExist(t *testing.T) {
	var document any
	text := testbed.Read(t, filepath.Join("..", "..", "..", "deploy", "grafana.json"))
	if err := json.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	known := measure.Described(measure.New(measure.Sources{}))
	if len(known) < 30 {
		t.Fatalf("only %d metrics are described", len(known))
	}
	labels := func(name string) ([]string, bool) {
		for _, end := range []string{"", "_count", "_sum", "_bucket"} {
			if of, ok := known[strings.TrimSuffix(name, end)]; ok && strings.HasSuffix(name, end) {
				return of, true
			}
		}
		return nil, false
	}
	all := queries(document, "expr")
	if len(all) < 25 {
		t.Fatalf("%d expressions", len(all))
	}
	used := map[string]bool{}
	for _, expr := range all {
		var metrics, rest []string
		for _, name := range word.FindAllString(quoted.ReplaceAllString(expr, ""), -1) {
			if _, ok := labels(name); ok {
				metrics = append(metrics, name)
				used[name] = true
			} else if !slices.Contains(keywords, name) {
				rest = append(rest, name)
			}
		}
		if len(metrics) == 0 {
			t.Errorf("%s has no metric that exists", expr)
		}
		for _, name := range rest {
			for _, metric := range metrics {
				if of, _ := labels(metric); !slices.Contains(of, name) {
					t.Errorf("%s: %s is neither a metric nor a label of %s", expr, name, metric)
				}
			}
		}
	}
	// Every number of ours is somewhere on it.
	for name := range known {
		if !strings.HasPrefix(name, "signalbox_") {
			continue
		}
		if !used[name] && !used[name+"_count"] {
			t.Errorf("the dashboard does not show %s", name)
		}
	}
}
