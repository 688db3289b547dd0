package archtest_test

import (
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A function that takes an http.ResponseWriter or an *http.Request translates: it decodes, calls
// a method, and encodes. These find what it does beyond that.

var (
	// sqlForm is how a text begins that a database is asked with.
	sqlForm = regexp.MustCompile(`^\s*(SELECT|INSERT INTO|UPDATE|DELETE FROM|WITH)\s`)
	// databaseCalls are methods that only databases and transactions have.
	databaseCalls = []string{
		"QueryRow", "QueryContext", "QueryRowContext", "ExecContext", "Reading", "Snapshot",
		"Bookkeep",
	}
	// ledgers are what the ledger and its transactions are called where they are used.
	ledgers = []string{"ledger", "Ledger", "tx"}
)

// queries are the names of the functions that speak HTTP and ask a database, or write.
func queries(tree *ast.File) (found []string) {
	for _, d := range tree.Decls {
		name := "a function"
		if fn, ok := d.(*ast.FuncDecl); ok {
			name = fn.Name.Name
		}
		ast.Inspect(d, func(n ast.Node) bool {
			var form *ast.FuncType
			var body *ast.BlockStmt
			switch fn := n.(type) {
			case *ast.FuncDecl:
				form, body = fn.Type, fn.Body
			case *ast.FuncLit:
				form, body = fn.Type, fn.Body
			}
			if form == nil || body == nil || !speaksHTTP(form) {
				return true
			}
			if what := firstQuery(body); what != "" {
				found = append(found, name+" ("+what+")")
			}
			return false // what stands in it was looked at
		})
	}
	return found
}

// speaksHTTP reports whether a function takes one of the two.
func speaksHTTP(form *ast.FuncType) bool {
	return slices.ContainsFunc(form.Params.List, func(p *ast.Field) bool {
		kind := p.Type
		if pointer, ok := kind.(*ast.StarExpr); ok {
			kind = pointer.X
		}
		selected, ok := kind.(*ast.SelectorExpr)
		if !ok {
			return false
		}
		from, ok := selected.X.(*ast.Ident)
		return ok && from.Name == "http" && (selected.Sel.Name == "ResponseWriter" || selected.Sel.Name == "Request")
	})
}

// firstQuery is the first thing in a body that is a database's business, "" for none.
func firstQuery(body *ast.BlockStmt) (what string) {
	ast.Inspect(body, func(n ast.Node) bool {
		switch x := n.(type) {
		case *ast.BasicLit:
			if text, err := strconv.Unquote(x.Value); x.Kind == token.STRING && err == nil && sqlForm.MatchString(text) {
				what = strings.Join(strings.Fields(text)[:2], " ")
			}
		case *ast.CallExpr:
			if called, ok := x.Fun.(*ast.SelectorExpr); ok && isDatabaseCall(called) {
				what = called.Sel.Name
			}
		}
		return what == ""
	})
	return what
}

func isDatabaseCall(called *ast.SelectorExpr) bool {
	if slices.Contains(databaseCalls, called.Sel.Name) {
		return true
	}
	of := ""
	switch x := called.X.(type) {
	case *ast.Ident:
		of = x.Name
	case *ast.SelectorExpr:
		of = x.Sel.Name
	}
	return slices.Contains(ledgers, of) &&
		(called.Sel.Name == "Write" || called.Sel.Name == "Append" || called.Sel.Name == "Select")
}
