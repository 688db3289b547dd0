package secret

import (
	"slices"
	"strings"
)

// try is something that may stand at the beginning of a word.
type try struct {
	prefix  string
	fold    bool // in any case
	how     how
	shape   *shape
	program int // of programs
}

// how is the way in which a try is followed up.
type how uint8

// The ways.
const (
	byShape how = iota
	byProgram
	byJWT
	byBearer
	byBasic
	byTerraform
	byPasswordWord
	byIdentified
)

// index finds the tries for the first two bytes of a word. A byte that no try has there is coded 0.
type index struct {
	code   [256]uint8
	groups [64 * 64]uint8
	tries  [][]try // by group; group 0 is empty
}

// tries is the index of everything that may stand at the beginning of a word.
var tries = newIndex(allTries())

func allTries() []try {
	all := []try{
		{prefix: "eyJ", how: byJWT},
		{prefix: "bearer ", fold: true, how: byBearer},
		{prefix: "basic ", fold: true, how: byBasic},
		{prefix: "atlasv1.", how: byTerraform},
		{prefix: "password", fold: true, how: byPasswordWord},
		{prefix: "identified by ", fold: true, how: byIdentified},
	}
	for i := range shapes {
		for prefix := range strings.FieldsSeq(shapes[i].prefixes) {
			all = append(all, try{prefix: prefix, shape: &shapes[i]})
		}
	}
	for i := range programs {
		all = append(all, try{prefix: programs[i].called, how: byProgram, program: i})
	}
	// sk-ant- is tried before sk-.
	slices.SortStableFunc(all, func(a, b try) int { return len(b.prefix) - len(a.prefix) })
	return all
}

func newIndex(all []try) *index {
	x := &index{tries: make([][]try, 1)}
	used := uint8(0)
	codeOf := func(c byte) int {
		if x.code[c] == 0 {
			used++
			x.code[c] = used
		}
		return int(x.code[c])
	}
	for _, t := range all {
		for _, first := range cases(t.prefix[0], t.fold) {
			for _, second := range cases(t.prefix[1], t.fold) {
				group := &x.groups[codeOf(first)<<6|codeOf(second)]
				if *group == 0 {
					*group = uint8(len(x.tries)) //nolint:gosec // about a hundred; with 256, samples are not found
					x.tries = append(x.tries, nil)
				}
				x.tries[*group] = append(x.tries[*group], t)
			}
		}
	}
	return x
}

// cases are the forms of a letter that a try stands for.
func cases(c byte, fold bool) []byte {
	if fold {
		return []byte{c, c - 'a' + 'A'}
	}
	return []byte{c}
}

// at is the group of tries for the word that a text begins with.
func (x *index) at(text string) uint8 {
	if len(text) < 2 {
		return 0
	}
	return x.groups[int(x.code[text[0]]&63)<<6|int(x.code[text[1]]&63)]
}
