package main

import (
	"bytes"
	"encoding/json" // the format is CycloneDX's, and this program stands on nothing of ours
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// copied is the source as git has it, in a folder of its own that is no repository.
func copied(t *testing.T, p *project) *project {
	t.Helper()
	list, err := command(t.Context(), p.root, nil,
		"git", "ls-files", "-z", "--", "go.mod", "go.sum", "cmd", "internal", "client")
	if err != nil {
		t.Skipf("this is no repository: %v", err)
	}
	other := *p
	other.root = t.TempDir()
	for name := range strings.SplitSeq(strings.TrimRight(string(list), "\x00"), "\x00") {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(p.root, name))
		if os.IsNotExist(err) {
			continue // removed, and not yet committed
		}
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(other.root, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return &other
}

// TestTheSameSourceMakesTheSameProgram from two folders: where it is built is not in it. The compiler's cache serves
// both, which shows the same: it keys packages by all that goes into them, and a path that did would be part of that.
// The list of its parts names what is in it, and checksums are those of the files.
func TestTheSameSourceMakesTheSameProgram(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds the program twice")
	}
	t.Parallel()
	p, err := openProject(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	own := target{"linux", runtime.GOARCH}
	var programs [][]byte
	for range 2 {
		folder, built := t.TempDir(), map[target]string{}
		source := copied(t, p)
		if err := source.build(t.Context(), folder, []target{own}, built, io.Discard); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(built[own])
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(text, []byte(source.root)) {
			t.Error("the program names the folder that it was built in")
		}
		programs = append(programs, text)
		if len(programs) == 2 {
			wantParts(t, source, built[own], own)
			wantSums(t, folder)
		}
	}
	if !bytes.Equal(programs[0], programs[1]) {
		t.Errorf("%d and %d bytes, and they differ", len(programs[0]), len(programs[1]))
	}
}

// wantParts checks the list of what is in a program.
func wantParts(t *testing.T, p *project, file string, which target) {
	t.Helper()
	if err := p.writeParts(t.Context(), file, which); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file + ".cdx.json")
	if err != nil {
		t.Fatal(err)
	}
	var list bom
	in := json.NewDecoder(bytes.NewReader(text))
	in.DisallowUnknownFields()
	if err := in.Decode(&list); err != nil {
		t.Fatal(err)
	}
	refs := map[string]bool{list.Metadata.Component.Ref: true}
	for _, c := range list.Components {
		if refs[c.Ref] || c.Version == "" || len(c.Licenses) == 0 || c.Type != "library" {
			t.Errorf("%+v", c)
		}
		refs[c.Ref] = true
	}
	for _, d := range list.Dependencies {
		for _, ref := range append(d.DependsOn, d.Ref) {
			if !refs[ref] {
				t.Errorf("nothing is %s", ref)
			}
		}
	}
	program, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if list.Format != "CycloneDX" || list.Spec != "1.6" || !strings.HasPrefix(list.Serial, "urn:uuid:") ||
		len(list.Components) < 40 || list.Metadata.Component.Hashes[0].Content != digest(program) {
		t.Errorf("%+v", list)
	}
}

// wantSums checks the checksums with the program that people check them with.
func wantSums(t *testing.T, folder string) {
	t.Helper()
	if err := writeSums(folder, io.Discard); err != nil {
		t.Fatal(err)
	}
	out, err := command(t.Context(), folder, nil, "sha256sum", "--check", "--strict", "SHA256SUMS")
	if err != nil || strings.Count(string(out), ": OK") != 2 {
		t.Errorf("%s %v", out, err)
	}
}
