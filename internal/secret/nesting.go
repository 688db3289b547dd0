package secret

import "strings"

// frame is an object or a list that is open.
type frame struct {
	list   bool
	called string // of a list: the name that its items go by; of an object: the member whose value comes
	last   string // of a list: the item before; of an object: what its member "name" or "key" says
}

// nesting is where a walk over JSON is: the objects and lists that are open, the innermost last. It
// is a value that the walk appends to, so that it stays on the stack.
type nesting []frame

// opened is the frame of an object or a list that opens. The items of a list go by the name that it
// goes by itself.
func (n nesting) opened(list bool) (f frame, next state) {
	if !list {
		return f, wantName
	}
	f.list = true
	if len(n) > 0 {
		f.called = n[len(n)-1].called
	}
	return f, wantItem
}

// in reports whether the innermost is a list, or an object.
func (n nesting) in(list bool) bool { return len(n) > 0 && n[len(n)-1].list == list }

// nameOf is the name that a string goes by: that of its member; that of the list it is in; the flag
// before it in a list of arguments; or what the object's member "name" says if its own is "value". A
// string that is a member's name goes by none.
func (n nesting) nameOf(plain string, isName bool) string {
	if len(n) == 0 {
		return ""
	}
	top := &n[len(n)-1]
	before := top.last
	switch {
	case isName:
		top.called = plain
		return ""
	case top.list:
		top.last = plain
		if strings.HasPrefix(before, "--") && !strings.HasPrefix(plain, "-") {
			return before
		}
	case top.called == "name" || top.called == "key" || top.called == "Name" || top.called == "Key":
		top.last = plain
	case top.called == "value" || top.called == "Value":
		return before
	}
	return top.called
}
