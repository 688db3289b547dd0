package wire

import (
	"bytes"
	"errors"
	"io"

	"github.com/go-json-experiment/json/jsontext"
)

// Step is one step from a JSON value to a part of it: the member or the element with this number, from 0.
type Step struct {
	Number int
	Name   string // of a member, "" for an element of a list
}

// Texts calls visit with every text of a JSON value, in the order in which they stand: strings, and the
// names of members, for which isName is true. path leads to it from the value, is empty for a value that is
// a text itself, and is good until visit returns. What cannot be read ends it with an error; everything
// before that was visited. It reads as UnmarshalForeign does.
func Texts(data []byte, visit func(path []Step, text string, isName bool)) error {
	d := decoders.Get().(*jsontext.Decoder)
	d.Reset(bytes.NewBuffer(data), foreign)
	defer func() {
		d.Reset(bytes.NewBuffer(nil)) // it keeps nothing of ours
		decoders.Put(d)
	}()
	path := []Step{}
	for {
		token, err := d.ReadToken()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		switch kind := token.Kind(); kind {
		case '{', '[':
			path = append(stepTo(d, path, d.StackDepth()-1), Step{Number: -1})
		case '}', ']':
			path = path[:d.StackDepth()]
		case '"':
			path = stepTo(d, path, d.StackDepth())
			inside, n := d.StackIndex(d.StackDepth())
			isName := inside == '{' && n%2 == 1
			text := token.String()
			if isName {
				path[len(path)-1].Name = text
			}
			visit(path, text, isName)
		}
	}
}

// stepTo corrects the last step of a path to the value or name that was just read at a depth.
func stepTo(d *jsontext.Decoder, path []Step, depth int) []Step {
	if depth == 0 {
		return path
	}
	inside, n := d.StackIndex(depth)
	if inside == '{' {
		path[depth-1].Number = int(n-1) / 2 // names and values are counted
	} else {
		path[depth-1] = Step{Number: int(n - 1)}
	}
	return path
}
