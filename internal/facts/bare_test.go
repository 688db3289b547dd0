package facts_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"signalbox/internal/facts"
)

// TestATextOfBareWordsNeedsNoParser compares what is found in a text of bare words with what the parser finds in it: a line
// break at its end changes nothing for a shell, and is nothing bare.
func TestATextOfBareWordsNeedsNoParser(t *testing.T) {
	words := strings.Fields("if then elif else fi while until for select foreach case esac in do done function time coproc let " +
		"declare local export readonly typeset nameref eval end repeat nocorrect noglob builtin exec command test trap set shift " +
		"source . : alias unset read mapfile return break continue wait exit always default " +
		"ls rm git curl cp mv cat tar sed find xargs sudo env bash sh -c python3 python nc ssh scp make cd echo tee dd nohup " +
		"timeout nice busybox watch docker kubectl -rf -r -f -la -- - --out=/etc/x -o x=1 =x a= a=b of=x 10 -n 1.5 2 /etc/passwd " +
		"../x ./run.sh . .. src example.com https://example.com/x me@example.com:/tmp HEAD origin/main +x %1 a,b @x push clone")
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(rapid.SampledFrom(words), 1, 6).Draw(t, "words"),
			strings.Repeat(" ", rapid.IntRange(1, 2).Draw(t, "blanks")))
		bare, parsed := of(text), of(text+"\n")
		if diff := cmp.Diff(parsed, bare, cmpopts.IgnoreFields(facts.Facts{}, "Command"), cmpopts.IgnoreUnexported(facts.Facts{}),
			cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%q (-parsed +bare):\n%s", text, diff)
		}
	})
}
