package main

import (
	"bytes"
	"strings"
	"testing"
)

// mit is a licence as people write it, with the line breaks that they choose.
const mit = `The MIT License (MIT)

Copyright (c) 2026 Somebody

Permission is hereby granted, free of charge, to any person obtaining a copy
of this software and associated documentation files (the "Software"), to deal
in the Software without restriction. ...

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND.
`

// TestALicenceIsRecognisedOrRefused: what is not known is not allowed, and neither is a known one with a condition
// more.
func TestALicenceIsRecognisedOrRefused(t *testing.T) {
	t.Parallel()
	const bsd = "Redistribution and use in source and binary forms, with or without\nmodification, are permitted " +
		"provided that the following conditions are met: ... THIS SOFTWARE IS PROVIDED BY ..."
	for _, c := range []struct{ name, text, want, refused string }{
		{"MIT", mit, "MIT", ""},
		{"BSD with two clauses", bsd, "BSD-2-Clause", ""},
		{
			"BSD with three", bsd + " may be used\n * to endorse or promote products\nderived from this software",
			"BSD-3-Clause", "",
		},
		{"two in one file", mit + bsd, "MIT BSD-2-Clause", ""},
		{
			"the Mozilla licence, which names others", "Mozilla Public License Version 2.0 ... " +
				"\"Secondary License\" " +
				"means either the GNU General Public License, Version 2.0, the GNU Lesser General Public License, Version 2.1, " +
				"the GNU Affero General Public License, Version 3.0, or any later versions of those licenses. ... Covered " +
				"Software is provided under this License on an \"as is\" basis", "MPL-2.0", "",
		},
		{"nothing", "All rights reserved.", "", "no licence that is allowed"},
		{"the GNU licence", "GNU GENERAL PUBLIC LICENSE\nVersion 3", "", "gnu general public license"},
		{"the GNU licence after another", mit + "or, at your option, the GNU Affero GPL", "", "gnu affero"},
		{"a condition more", mit + "\"Commons Clause\" License Condition v1.0", "", "commons clause"},
		{
			"a condition that nobody knows", mit + strings.Repeat("You may not use it on Sundays. ", 50), "",
			"look at what else it says",
		},
	} {
		ids, err := identify("LICENSE", []byte(c.text))
		if got := strings.Join(ids, " "); got != c.want || (err == nil) != (c.refused == "") ||
			err != nil && !strings.Contains(err.Error(), c.refused) {
			t.Errorf("%s: %q %v", c.name, got, err)
		}
	}
}

// TestEveryModuleInTheProgramHasAnAllowedLicence is the check of this repository: it reads the licences in the module
// cache of everything that is built into the program for any system.
func TestEveryModuleInTheProgramHasAnAllowedLicence(t *testing.T) {
	t.Parallel()
	p, err := openProject(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := p.listLicences(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{standardLibrary, "modernc.org/sqlite", "github.com/jackc/pgx/v5"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s is not in the list:\n%s", want, out.String())
		}
	}
	text, err := p.licenceTexts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"SQLite Is Public Domain", "Jack Christensen", "NOTICE"} {
		if !bytes.Contains(text, []byte(want)) {
			t.Errorf("the licences do not say %q", want)
		}
	}
}
