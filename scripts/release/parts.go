package main

import (
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json" // the format is CycloneDX's, and this program stands on nothing of ours
	"fmt"
	"os"
	"strings"
	"time"
)

// bom is a list of what a program is made of, as CycloneDX 1.6 describes it.
type bom struct {
	Format       string       `json:"bomFormat"`
	Spec         string       `json:"specVersion"`
	Serial       string       `json:"serialNumber"`
	Version      int          `json:"version"`
	Metadata     metadata     `json:"metadata"`
	Components   []component  `json:"components"`
	Dependencies []dependency `json:"dependencies"`
}

type metadata struct {
	Timestamp string    `json:"timestamp"`
	Component component `json:"component"`
}

type component struct {
	Type     string          `json:"type"`
	Ref      string          `json:"bom-ref"`
	Name     string          `json:"name"`
	Version  string          `json:"version"`
	Hashes   []hashed        `json:"hashes,omitempty"`
	Licenses []licenceChoice `json:"licenses,omitempty"`
	PURL     string          `json:"purl,omitempty"`
}

type hashed struct {
	Alg     string `json:"alg"`
	Content string `json:"content"`
}

type licenceChoice struct {
	License struct {
		ID string `json:"id"`
	} `json:"license"`
}

type dependency struct {
	Ref       string   `json:"ref"`
	DependsOn []string `json:"dependsOn,omitempty"`
}

// writeParts writes, beside a program, the list of what is in it. It is read from the program itself: what the compiler
// put there counts, and not what go.mod would allow.
func (p *project) writeParts(ctx context.Context, file string, t target) error {
	list, err := p.parts(ctx, file, t)
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(list, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file+".cdx.json", append(text, '\n'), 0o644)
}

// parts reads what a program is made of.
func (p *project) parts(ctx context.Context, file string, t target) (*bom, error) {
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		return nil, err
	}
	program, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	modules, err := p.modules(ctx)
	if err != nil {
		return nil, err
	}
	licences := map[string][]licenceChoice{}
	for _, m := range modules {
		ids, err := m.licences()
		if err != nil {
			return nil, err
		}
		licences[m.path+"@"+m.version] = choices(ids)
	}
	sum := sha256.Sum256(program)
	ref := fmt.Sprintf("pkg:golang/signalbox@%s?goos=%s&goarch=%s", p.version, t.system, t.arch)
	list := &bom{
		Format: "CycloneDX", Spec: "1.6", Serial: serial(sum), Version: 1,
		Metadata: metadata{p.made.Format(time.RFC3339), component{
			Type: "application", Ref: ref, Name: "signalbox", Version: p.version, PURL: ref,
			Licenses: choices([]string{"Apache-2.0"}), Hashes: []hashed{{"SHA-256", hex.EncodeToString(sum[:])}},
		}},
	}
	main := dependency{Ref: ref}
	add := func(path, version string) error {
		found, ok := licences[path+"@"+version]
		if !ok {
			return fmt.Errorf("%s has %s %s in it, and the source does not: it was built from another one", file, path, version)
		}
		purl := "pkg:golang/" + strings.ToLower(path) + "@" + version
		list.Components = append(list.Components, component{
			Type: "library", Ref: purl, Name: path, Version: version, PURL: purl, Licenses: found,
		})
		main.DependsOn = append(main.DependsOn, purl)
		list.Dependencies = append(list.Dependencies, dependency{Ref: purl})
		return nil
	}
	if err := add(standardLibrary, strings.TrimPrefix(info.GoVersion, "go")); err != nil {
		return nil, err
	}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		if err := add(m.Path, m.Version); err != nil {
			return nil, err
		}
	}
	list.Dependencies = append(list.Dependencies, main)
	return list, nil
}

func choices(ids []string) (all []licenceChoice) {
	for _, id := range ids {
		var one licenceChoice
		one.License.ID = id
		all = append(all, one)
	}
	return all
}

// serial is the number of a list: a UUID of version 8, which is made from the program, so that the same program has the
// same list.
func serial(sum [sha256.Size]byte) string {
	sum[6], sum[8] = sum[6]&0x0f|0x80, sum[8]&0x3f|0x80
	text := hex.EncodeToString(sum[:16])
	return fmt.Sprintf("urn:uuid:%s-%s-%s-%s-%s", text[:8], text[8:12], text[12:16], text[16:20], text[20:])
}
