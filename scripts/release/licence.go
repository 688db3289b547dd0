package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// licenceFile has the licences of everything that is in the programs.
const licenceFile = "THIRD-PARTY-LICENSES.txt"

// module is something of others that is in the program: a Go module, or the standard library.
type module struct {
	path, version, dir string
	folders            map[string]bool // of its packages that are used
}

// standardLibrary is what is named so in lists.
const standardLibrary = "stdlib"

// modules lists what is in the programs for all systems, sorted by path. Only packages that are built count: a module
// that tests need is not given to anybody.
func (p *project) modules(ctx context.Context) ([]module, error) {
	text, err := command(ctx, p.root, nil, "go", "env", "GOROOT", "GOVERSION")
	if err != nil {
		return nil, err
	}
	root, version, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	all := map[string]module{
		standardLibrary: {standardLibrary, strings.TrimPrefix(version, "go"), root, map[string]bool{root: true}},
	}
	const form = "{{with .Module}}{{if not .Main}}{{.Path}}\t{{.Version}}\t{{.Dir}}\t{{$.Dir}}{{end}}{{end}}"
	for _, t := range targets {
		environment := []string{"CGO_ENABLED=0", "GOOS=" + t.system, "GOARCH=" + t.arch}
		text, err := command(ctx, p.root, environment, "go", "list", "-deps", "-f", form, mainPackage)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(text)) {
			parts := strings.Split(strings.TrimSpace(line), "\t")
			if len(parts) != 4 {
				continue // of the standard library, or ours
			}
			m, ok := all[parts[0]]
			if !ok {
				m = module{parts[0], parts[1], parts[2], map[string]bool{}}
				all[m.path] = m
			}
			m.folders[parts[3]] = true
		}
	}
	return slices.SortedFunc(maps.Values(all), func(a, b module) int { return strings.Compare(a.path, b.path) }), nil
}

// legal are files that go with a program, licence those that say under which licence it is given.
var (
	legal   = regexp.MustCompile(`(?i)^(licen[cs]e|copying|unlicense|notice|patents)([.-].*)?$`)
	licence = regexp.MustCompile(`(?i)^(licen[cs]e|copying|unlicense)([.-].*)?$`)
)

// files are the legal files of a module, below its folder: those beside its packages that are used, and above them.
func (m *module) files() ([]string, error) {
	found := map[string]bool{}
	for folder := range m.folders {
		for {
			entries, err := os.ReadDir(folder)
			if err != nil {
				return nil, err
			}
			for _, e := range entries {
				if e.Type().IsRegular() && legal.MatchString(e.Name()) {
					name, err := filepath.Rel(m.dir, filepath.Join(folder, e.Name()))
					if err != nil {
						return nil, err
					}
					found[name] = true
				}
			}
			if folder == m.dir || len(folder) <= len(m.dir) {
				break
			}
			folder = filepath.Dir(folder)
		}
	}
	return slices.Sorted(maps.Keys(found)), nil
}

// known is a licence that is allowed, recognised by sentences of it. words is how long it is: a file that is much
// longer says something more.
type known struct {
	id    string
	has   []string
	words int
}

// allowed are the licences under which others may use the program as they use ours: nothing that asks for the source
// of what stands beside it, and nothing that says what for it may be used.
var allowed = []known{
	{"Apache-2.0", []string{"apache license version 2 0 january 2004", "grant of patent license"}, 1600},
	{"Apache-2.0", []string{
		"licensed under the apache license version 2 0", "you may not use this file except in compliance",
	}, 110},
	{"MIT", []string{
		"permission is hereby granted free of charge to any person obtaining a copy of this software and associated " +
			"documentation files the software to deal in the software without restriction",
		"the software is provided as is without warranty of any kind",
	}, 190},
	{"BSD-3-Clause", []string{
		"redistribution and use in source and binary forms with or without modification are permitted provided that the " +
			"following conditions are met", "to endorse or promote products derived from this software",
	}, 250},
	{"BSD-2-Clause", []string{
		"redistribution and use in source and binary forms with or without modification are permitted provided that the " +
			"following conditions are met", "this software is provided by",
	}, 220},
	{"ISC", []string{
		"permission to use copy modify and or distribute this software for any purpose with or without fee",
	}, 130},
	{"ISC", []string{
		"permission to use copy modify and distribute this software for any purpose with or without fee",
	}, 130},
	{"MPL-2.0", []string{
		"mozilla public license version 2 0", "covered software is provided under this license on an as is basis",
	}, 2800},
	{"CC0-1.0", []string{"cc0 1 0 universal"}, 1100},
	{"Unlicense", []string{"this is free and unencumbered software released into the public domain"}, 230},
	{"Zlib", []string{"altered source versions must be plainly marked as such"}, 160},
	{"blessing", []string{"sqlite has been dedicated to the public domain"}, 270},
}

// refused are words of licences that are not allowed, wherever they stand.
var refused = []string{
	"gnu general public license", "gnu lesser general public", "gnu library general public", "gnu affero",
	"server side public license", "business source license", "commons clause", "elastic license", "polyform",
	"noncommercial", "non commercial use only", "non commercial purposes only", "shall be used for good not evil",
	"confluent community license", "eclipse public license", "european union public licence",
}

// secondary is the sentence by which the Mozilla licence names others.
const secondary = "means either the gnu general public license version 2 0 the gnu lesser general public license " +
	"version 2 1 the gnu affero general public license version 3 0 or any later versions of those licenses"

// exceptions are files that name no licence, and why that is right.
var exceptions = map[string]string{
	"modernc.org/memory/LICENSE-LOGO": "it is the address of a picture, which is not in the program",
}

// plain is a text in lower case, with nothing but its words and numbers.
func plain(text []byte) string {
	return strings.Join(strings.FieldsFunc(strings.ToLower(string(text)), func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9')
	}), " ")
}

// identify names the licences in a file. It is an error if there is none that is allowed, one that is not, or much more
// than those that are.
func identify(name string, text []byte) (ids []string, err error) {
	words := plain(text)
	for _, bad := range refused {
		if strings.Contains(strings.ReplaceAll(words, secondary, ""), bad) {
			return nil, fmt.Errorf("it says %q, which is not allowed", bad)
		}
	}
	room := 0
	for _, k := range allowed {
		if slices.ContainsFunc(k.has, func(sentence string) bool { return !strings.Contains(words, sentence) }) {
			continue
		}
		if k.id == "BSD-2-Clause" && slices.Contains(ids, "BSD-3-Clause") || slices.Contains(ids, k.id) {
			continue
		}
		ids, room = append(ids, k.id), room+k.words
	}
	if len(ids) == 0 {
		return nil, fmt.Errorf("no licence that is allowed was recognised in it")
	}
	// A list of third parties has as many texts as there are.
	if n := strings.Count(words, " ") + 1; n > room+60 && !strings.Contains(strings.ToUpper(name), "3RD-PARTY") {
		return nil, fmt.Errorf("it has %d words, and %s has about %d: look at what else it says", n,
			strings.Join(ids, " and "), room)
	}
	return ids, nil
}

// licences names the licences of a module. One that cannot be told is an error.
func (m *module) licences() (ids []string, err error) {
	files, err := m.files()
	if err != nil {
		return nil, err
	}
	for _, name := range files {
		if !licence.MatchString(filepath.Base(name)) || exceptions[m.path+"/"+name] != "" {
			continue
		}
		text, err := os.ReadFile(filepath.Join(m.dir, name))
		if err != nil {
			return nil, err
		}
		found, err := identify(name, text)
		if err != nil {
			return nil, fmt.Errorf("%s %s: %s: %w", m.path, m.version, name, err)
		}
		ids = append(ids, found...)
	}
	if len(ids) == 0 {
		return nil, fmt.Errorf("%s %s has no file with a licence", m.path, m.version)
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

// listLicences prints the licences of all modules, and fails if one of them is not allowed.
func (p *project) listLicences(ctx context.Context, out io.Writer) error {
	all, err := p.modules(ctx)
	if err != nil {
		return err
	}
	var wrong []string
	for _, m := range all {
		ids, err := m.licences()
		if err != nil {
			wrong = append(wrong, err.Error())
			continue
		}
		if _, err := fmt.Fprintf(out, "%-50s %-40s %s\n", m.path, m.version, strings.Join(ids, ", ")); err != nil {
			return err
		}
	}
	if len(wrong) > 0 {
		return fmt.Errorf("these licences are not allowed, or not known:\n%s", strings.Join(wrong, "\n"))
	}
	return nil
}

// licenceTexts are the legal files of everything in the programs, one after another.
func (p *project) licenceTexts(ctx context.Context) ([]byte, error) {
	all, err := p.modules(ctx)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "What others wrote and Signalbox %s contains, with their licences.\n", p.version)
	for _, m := range all {
		if _, err := m.licences(); err != nil {
			return nil, err
		}
		files, err := m.files()
		if err != nil {
			return nil, err
		}
		for _, name := range files {
			text, err := os.ReadFile(filepath.Join(m.dir, name))
			if err != nil {
				return nil, err
			}
			fmt.Fprintf(&out, "\n%s\n%s %s: %s\n%s\n\n%s\n", strings.Repeat("=", 80), m.path, m.version, filepath.ToSlash(name),
				strings.Repeat("=", 80), bytes.TrimSpace(text))
		}
	}
	return out.Bytes(), nil
}
