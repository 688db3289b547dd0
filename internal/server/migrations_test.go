package server_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"signalbox/internal/server"
	"signalbox/internal/store"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

// digests are the steps of the sets, each as a line of package, number and SHA-256.
func digests(sets []store.Migrations) (lines []string) {
	for _, set := range sets {
		for i, step := range set.Steps {
			lines = append(lines, fmt.Sprintf("%s %d %x", set.Package, i+1, sha256.Sum256([]byte(step))))
		}
	}
	return lines
}

// stepOf is the package and the number of the step in a line.
func stepOf(line string) string {
	return line[:max(0, strings.LastIndexByte(line, ' '))]
}

// compareSteps compares the digests of the steps that have landed with those of the
// program. wrong says what was done to a landed step; fresh are the lines of new steps.
func compareSteps(landed, program []string) (wrong, fresh []string) {
	has := func(lines []string, step string) bool {
		return slices.ContainsFunc(lines, func(line string) bool { return stepOf(line) == step })
	}
	for _, line := range landed {
		done := "was changed"
		if !has(program, stepOf(line)) {
			done = "is gone"
		}
		if !slices.Contains(program, line) {
			wrong = append(wrong, fmt.Sprintf("A migration step that has landed %s: %s. "+
				"A database that has the step is refused by a program that does not. "+
				"Put the step back, and append a new one that does what you need.", done, stepOf(line)))
		}
	}
	for _, line := range program {
		if !has(landed, stepOf(line)) {
			fresh = append(fresh, line)
		}
	}
	return wrong, fresh
}

func TestMigrationStepsThatHaveLandedStayAsTheyAre(t *testing.T) {
	path := filepath.Join("testdata", "migrations.sums")
	text := testbed.Read(t, path)
	landed := strings.FieldsFunc(string(text), func(r rune) bool { return r == '\n' })
	wrong, fresh := compareSteps(landed, digests(server.Migrations()))
	for _, sentence := range wrong {
		t.Error(sentence)
	}
	if len(fresh) == 0 {
		return
	}
	if !*update || len(wrong) > 0 {
		t.Fatalf("%s lacks new steps. When they are final, -update appends them:\n%s", path, strings.Join(fresh, "\n"))
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0) // what is there stays
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteString(strings.Join(fresh, "\n") + "\n")
	if closed := f.Close(); err != nil || closed != nil {
		t.Fatal(err, closed)
	}
}

func TestWhatIsDoneToALandedStepIsFound(t *testing.T) {
	// A package with its steps, as in a=one,two.
	read := func(text string) (sets []store.Migrations) {
		for part := range strings.FieldsSeq(text) {
			name, steps, _ := strings.Cut(part, "=")
			sets = append(sets, store.Migrations{Package: name, Steps: strings.Split(steps, ",")})
		}
		return sets
	}
	for _, c := range []struct{ what, program, wrong, fresh string }{
		{"nothing", "a=one,two,three b=four", "", ""},
		{"sets in another order", "b=four a=one,two,three", "", ""},
		{"a new step", "a=one,two,three,five b=four", "", "a 4"},
		{"a new package", "a=one,two,three b=four c=five", "", "c 1"},
		{"an edit", "a=one,TWO,three b=four", "was changed: a 2", ""},
		{"steps in another order", "a=two,one,three b=four", "was changed: a 1, was changed: a 2", ""},
		{"a step in between", "a=one,five,two,three b=four", "was changed: a 2, was changed: a 3", "a 4"},
		{"a step less", "a=one,two b=four", "is gone: a 3", ""},
		{"a package less", "a=one,two,three", "is gone: b 1", ""},
		{"another name", "a=one,two,three c=four", "is gone: b 1", "c 1"},
	} {
		wrong, fresh := compareSteps(digests(read("a=one,two,three b=four")), digests(read(c.program)))
		for i, sentence := range wrong {
			sentence, _, _ = strings.Cut(sentence, ". ")
			wrong[i] = strings.TrimPrefix(sentence, "A migration step that has landed ")
		}
		for i, line := range fresh {
			fresh[i] = stepOf(line)
		}
		got := [2]string{strings.Join(wrong, ", "), strings.Join(fresh, ", ")}
		if diff := cmp.Diff([2]string{c.wrong, c.fresh}, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.what, diff)
		}
	}
}

func TestTheSchemaIsTheGoldenOne(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		db := storetest.Open(t, address, server.Migrations()...)
		got, err := db.Schema(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join("testdata", "schema."+db.Name())
		if *update {
			testbed.Write(t, path, got)
		}
		want := testbed.Read(t, path)
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("the schema differs from %s (write it anew with -update if that is meant):\n%s", path, diff)
		}
	})
}
