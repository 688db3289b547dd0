package web

import (
	"fmt"
	"html/template"
	"reflect"
	"text/template/parse"

	"signalbox/internal/show"
)

// shown is a text that can be put on a page as it is: its characters were made visible, or it is ours.
type shown string

// lines is a text that may have several lines, made visible, for elements that keep them.
func lines(text any) shown { return shown(show.Lines(fmt.Sprint(text))) }

// exact is a text that a form sends back, such as the source of the policy, which must stay what it is.
func exact(text string) shown { return shown(text) }

// visible is what every value on a page goes through: texts are made visible as one line, unless a
// template has said otherwise. What is markup already was made by our own functions.
func visible(value any) any {
	switch v := value.(type) {
	case shown:
		return string(v)
	case template.HTML, template.URL:
		return v
	case error:
		return show.Text(v.Error())
	case fmt.Stringer:
		return show.Text(v.String())
	}
	v := reflect.Indirect(reflect.ValueOf(value))
	switch v.Kind() {
	case reflect.String:
		return show.Text(v.String())
	case reflect.Slice, reflect.Map, reflect.Struct, reflect.Interface:
		return show.Text(fmt.Sprint(v.Interface()))
	}
	return value
}

// makeVisible puts the function visible at the end of every pipeline of a template that writes a
// value, so that a page has no other way to write one. html/template does the same for its escapes,
// which come after.
func makeVisible(t *template.Template) {
	for _, one := range t.Templates() {
		if one.Tree != nil {
			inList(one.Tree, one.Tree.Root)
		}
	}
}

// inList does so in a list of nodes and in everything below.
func inList(tree *parse.Tree, list *parse.ListNode) {
	if list == nil {
		return
	}
	for _, node := range list.Nodes {
		switch n := node.(type) {
		case *parse.ActionNode:
			if len(n.Pipe.Decl) == 0 {
				call := parse.NewIdentifier("visible").SetTree(tree).SetPos(n.Pos)
				n.Pipe.Cmds = append(n.Pipe.Cmds, &parse.CommandNode{
					NodeType: parse.NodeCommand, Pos: n.Pos, Args: []parse.Node{call},
				})
			}
		case *parse.IfNode:
			inList(tree, n.List)
			inList(tree, n.ElseList)
		case *parse.RangeNode:
			inList(tree, n.List)
			inList(tree, n.ElseList)
		case *parse.WithNode:
			inList(tree, n.List)
			inList(tree, n.ElseList)
		case *parse.ListNode:
			inList(tree, n)
		}
	}
}
