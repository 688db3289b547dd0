package engine

import (
	"slices"
	"testing"
)

func TestAnEnvironmentIsWhatIsOnTheList(t *testing.T) {
	e, err := Find("claude")
	if err != nil {
		t.Fatal(err)
	}
	all := []string{
		"PATH=/bin", "LC_TIME=C", "ANTHROPIC_API_KEY=k", "CLAUDE_CODE_X=1", "MINE_A=1", "EXACT=1", "https_proxy=http://p",
		"SIGNALBOX_TOKEN=t", "SIGNALBOX_PROXY_ANTHROPIC_KEY=k", "SIGNALBOX_KEY=k", "OPENAI_API_KEY=k", "PGPASSWORD=p",
		"EXACTLY_NOT=1", "DATABASE_URL=d", "XPATH=1",
	}
	got := e.Listed(all, Settings{Env: []string{"MINE_*", "EXACT", "SIGNALBOX_*"}})
	if want := all[:7]; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	personal := Personal(append(all, "SIGNALBOX_DATA=/d", "SIGNALBOX_SERVER=s"))
	want := slices.Concat(all[:7], all[9:], []string{"SIGNALBOX_DATA=/d", "SIGNALBOX_SERVER=s"})
	if !slices.Equal(personal, want) {
		t.Errorf("got %q, want %q", personal, want)
	}
	for name, ok := range map[string]bool{
		"SSH_AUTH_SOCK": true, "AWS_*": true, "": false, "*": false, "SIGNALBOX_DB": false, "A B": false, "A=B": false,
	} {
		if IsVariable(name) != ok {
			t.Errorf("%q: %v", name, !ok)
		}
	}
}
