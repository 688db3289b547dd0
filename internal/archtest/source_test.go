package archtest_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// pkg is what the rules look at: one folder with Go files.
type pkg struct {
	dir   string // below the module's root, with slashes
	doc   string
	files []file
}

type file struct {
	name    string
	test    bool
	imports []string
	reasons map[string]string // the comments beside imports
	lines   int
	hasInit bool
	entries bool     // names the table of entries
	queries []string // what functions that speak HTTP ask of a database, or write
}

func (p pkg) hasCode() bool {
	return slices.ContainsFunc(p.files, func(f file) bool { return !f.test })
}

// lines are those of the package without its tests.
func (p pkg) lines() (n int) {
	for _, f := range p.files {
		if !f.test {
			n += f.lines
		}
	}
	return n
}

// readModule reads every package of the module. Folders with a go.mod of their own
// are other modules.
func readModule(root fs.FS) ([]pkg, error) {
	var pkgs []pkg
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if name != "." {
			if base := path.Base(name); base == "testdata" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") {
				return fs.SkipDir
			}
			if _, err := fs.Stat(root, path.Join(name, "go.mod")); err == nil {
				return fs.SkipDir
			}
		}
		p, err := readPackage(root, name)
		if err == nil && len(p.files) > 0 {
			pkgs = append(pkgs, p)
		}
		return err
	})
	return pkgs, err
}

func readPackage(root fs.FS, dir string) (pkg, error) {
	p := pkg{dir: dir}
	names, err := fs.Glob(root, path.Join(dir, "*.go"))
	if err != nil {
		return p, err
	}
	for _, name := range names {
		source, err := fs.ReadFile(root, name)
		if err != nil {
			return p, err
		}
		tree, err := parser.ParseFile(token.NewFileSet(), name, source, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return p, err
		}
		f := file{
			name: path.Base(name), test: strings.HasSuffix(name, "_test.go"), lines: bytes.Count(source, []byte("\n")),
			reasons: map[string]string{}, entries: bytes.Contains(source, []byte(entryTable)),
		}
		for _, spec := range tree.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return p, err
			}
			f.imports = append(f.imports, imported)
			f.reasons[imported] = strings.TrimSpace(spec.Doc.Text() + spec.Comment.Text())
		}
		f.hasInit = slices.ContainsFunc(tree.Decls, isInit)
		f.queries = queries(tree)
		if !f.test {
			p.doc += tree.Doc.Text() + "\n"
		}
		p.files = append(p.files, f)
	}
	return p, nil
}

func isInit(d ast.Decl) bool {
	fn, ok := d.(*ast.FuncDecl)
	return ok && fn.Recv == nil && fn.Name.Name == "init"
}

// readProtocols reads which packages are protocols from the server's list: those whose
// Protocol function it calls.
func readProtocols(root fs.FS) (names []string) {
	const list = "internal/server/protocols.go"
	source, err := fs.ReadFile(root, list)
	if err != nil {
		panic(err)
	}
	tree, err := parser.ParseFile(token.NewFileSet(), list, source, parser.SkipObjectResolution)
	if err != nil {
		panic(err)
	}
	ast.Inspect(tree, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			if f, ok := call.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "Protocol" {
				names = append(names, f.X.(*ast.Ident).Name)
			}
		}
		return true
	})
	return names
}
