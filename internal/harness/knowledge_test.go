package harness_test

import (
	"strings"
	"testing"

	"signalbox/internal/harness"
	"signalbox/internal/harness/knowledge"
	"signalbox/internal/roster"
	"signalbox/internal/store/storetest"
	"signalbox/internal/wire"
)

// Another workspace's knowledge is not there.
func TestKnowledgeStaysInItsWorkspace(t *testing.T) {
	n := start(t, storetest.SQLite(t), harness.Config{})
	if err := n.Roster.AddWorkspace(t.Context(), roster.Identity{Role: roster.Admin}, "other"); err != nil {
		t.Fatal(err)
	}
	if _, err := n.harness.Knowledge.Add(t.Context(), n.operator,
		knowledge.NewKnowledge{Workspace: "other", Content: "secret", Source: "s"}); err != nil {
		t.Fatal(err)
	}
	if found, err := n.harness.Knowledge.Search(t.Context(), "default", "secret", 10); err != nil || len(found) != 0 {
		t.Errorf("%+v %v", found, err)
	}
	found, err := n.harness.Knowledge.Search(t.Context(), "other", "secret", 10)
	if err != nil || len(found) != 1 {
		t.Fatalf("%+v %v", found, err)
	}
	if _, err := n.harness.Knowledge.Get(wire.WithScope(t.Context(), "default"), found[0].ID); err == nil {
		t.Error("it is shown over the wall")
	}
}

func TestKnowledgeThatIsNoneIsRefused(t *testing.T) {
	n := start(t, storetest.SQLite(t), harness.Config{})
	two := 2.0
	for name, k := range map[string]knowledge.NewKnowledge{
		"nothing":      {Source: "s"},
		"no source":    {Content: "c"},
		"too sure":     {Content: "c", Source: "s", Confidence: &two},
		"too long":     {Content: strings.Repeat("x", 65<<10), Source: "s"},
		"long source":  {Content: "c", Source: strings.Repeat("x", 3000)},
		"no workspace": {Content: "c", Source: "s", Workspace: "mars"},
	} {
		if k.Workspace == "" {
			k.Workspace = "default"
		}
		if _, err := n.harness.Knowledge.Add(t.Context(), n.operator, k); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}
