package web

import (
	"bytes"
	"html"
	"html/template"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	extast "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer"
	markup "github.com/yuin/goldmark/renderer/html"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"

	"signalbox/internal/show"
)

// markdown shows Markdown that an agent wrote. People decide by what they see here, so no part of
// the text is left out: raw HTML, link definitions and addresses that may not be followed stay
// text. An image becomes a link, since showing it would fetch it.
//
// The result may be template.HTML because an agent's bytes reach the page in three ways only.
// Texts go through goldmark's writer, which escapes <, >, & and ". Elements are those of
// goldmark's renderer and of plainNodes, with fixed names; the parser neither makes nodes of raw
// HTML nor reads attributes, so no name, id, class or handler is an agent's. The one attribute
// that is, href, has an http or https address (webLink), escaped. FuzzMarkdown checks this.
func markdown(source string) (shown template.HTML) {
	source = show.Lines(source)
	defer func() {
		if recover() != nil { // a fault of the parser must not hide the gate that waits
			shown = plainText(source)
		}
	}()
	// Checked before parsing: the cost is in the parser.
	if len(source) > maxText || strings.Count(source, "[") > maxLinks {
		return plainText(source)
	}
	var out bytes.Buffer
	err := newMarkdown().Convert([]byte(source), &out)
	if err != nil || out.Len() > maxGrowth*len(source)+maxGrowth<<8 {
		return plainText(source)
	}
	return template.HTML(out.String()) //nolint:gosec // see above
}

// Texts that would take the parser quadratic time, or make a page heavy, are shown unformatted:
// otherwise an agent could hold up every page that shows its text. BenchmarkMarkdown measures the
// worst cases.
const (
	maxGrowth = 4      // how many times longer than the text its HTML may be
	maxLinks  = 1_000  // opening brackets in a text
	maxDepth  = 32     // lists and quotes in each other
	maxCells  = 10_000 // cells of a table, with those that rows are filled up with
)

// plainText is the text without formatting.
func plainText(source string) template.HTML {
	return template.HTML("<pre>" + html.EscapeString(source) + "</pre>") //nolint:gosec // escaped
}

// newMarkdown is CommonMark with tables, but without raw HTML and link definitions: the parsers
// are listed one by one, and those two are absent.
func newMarkdown() goldmark.Markdown {
	ranked := util.Prioritized //nolint:misspell // it is the library's word
	return goldmark.New(
		goldmark.WithParser(parser.NewParser(
			parser.WithBlockParsers(
				ranked(parser.NewSetextHeadingParser(), 100),
				ranked(parser.NewThematicBreakParser(), 200),
				ranked(shallow{parser.NewListParser()}, 300),
				ranked(parser.NewListItemParser(), 400),
				ranked(parser.NewCodeBlockParser(), 500),
				ranked(parser.NewATXHeadingParser(), 600),
				ranked(parser.NewFencedCodeBlockParser(), 700),
				ranked(shallow{parser.NewBlockquoteParser()}, 800),
				ranked(parser.NewParagraphParser(), 1000),
			),
			parser.WithInlineParsers(
				ranked(parser.NewCodeSpanParser(), 100),
				ranked(parser.NewLinkParser(), 200),
				ranked(parser.NewAutoLinkParser(), 300),
				ranked(parser.NewEmphasisParser(), 500),
			),
			parser.WithParagraphTransformers(ranked(smallTables{extension.NewTableParagraphTransformer()}, 200)),
			parser.WithASTTransformers(
				ranked(extension.NewTableASTTransformer(), 0),
				ranked(wholeRows{}, 100),
			),
		)),
		goldmark.WithRenderer(renderer.NewRenderer(renderer.WithNodeRenderers(
			ranked(plainNodes{}, 100),
			ranked(extension.NewTableHTMLRenderer(extension.WithTableCellAlignMethod(extension.TableCellAlignNone)), 500),
			ranked(markup.NewRenderer(markup.WithHardWraps()), 1000),
		))),
	)
}

// shallow opens no list and no quote inside of maxDepth others. The parser recurses.
type shallow struct{ parser.BlockParser }

// Open implements parser.BlockParser.
func (s shallow) Open(parent ast.Node, reader text.Reader, pc parser.Context) (ast.Node, parser.State) {
	if len(pc.OpenedBlocks()) >= maxDepth {
		return nil, parser.NoChildren
	}
	return s.BlockParser.Open(parent, reader, pc)
}

// smallTables leaves a table as text if it would have too many cells. Every row is filled up to
// the width of the head, so a few bytes a row would be enough to make millions.
type smallTables struct{ parser.ParagraphTransformer }

// Transform implements parser.ParagraphTransformer.
func (s smallTables) Transform(node *ast.Paragraph, reader text.Reader, pc parser.Context) {
	lines, widest := node.Lines(), 0
	for _, line := range lines.Sliced(0, lines.Len()) {
		widest = max(widest, bytes.Count(line.Value(reader.Source()), []byte("|"))+1)
	}
	// An upper bound: escaped bars are counted as cells, too.
	if lines.Len()*widest <= maxCells {
		s.ParagraphTransformer.Transform(node, reader, pc)
	}
}

// wholeRows adds the cells that a row has beyond those of the table's head. The specification of
// tables drops them, and an agent could hide text that way.
type wholeRows struct{}

// Transform implements parser.ASTTransformer.
func (wholeRows) Transform(document *ast.Document, reader text.Reader, _ parser.Context) {
	source := reader.Source()
	_ = ast.Walk(document, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		last := n.LastChild()
		if n.Kind() != extast.KindTableRow || !entering || last == nil || last.Lines().Len() == 0 {
			return ast.WalkContinue, nil
		}
		from := last.Lines().At(0).Stop
		rest := source[from:]
		if end := bytes.IndexByte(rest, '\n'); end >= 0 {
			rest = rest[:end]
		}
		if rest = bytes.Trim(rest, " \t\r|"); len(rest) > 0 {
			cell := extast.NewTableCell()
			cell.AppendChild(cell, ast.NewString(rest))
			n.AppendChild(n, cell)
		}
		return ast.WalkContinue, nil
	})
}

// plainNodes renders what goldmark would render with more than we want: headings of every level,
// code with a class, links to anywhere, images.
type plainNodes struct{}

// RegisterFuncs implements renderer.NodeRenderer.
func (plainNodes) RegisterFuncs(reg renderer.NodeRendererFuncRegisterer) {
	reg.Register(ast.KindHeading, renderHeading)
	reg.Register(ast.KindCodeBlock, renderCode)
	reg.Register(ast.KindFencedCodeBlock, renderCode)
	reg.Register(ast.KindAutoLink, renderAutoLink)
	reg.Register(ast.KindLink, func(w util.BufWriter, _ []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
		link := n.(*ast.Link)
		return renderLink(w, n, "[", link.Destination, link.Title, entering)
	})
	reg.Register(ast.KindImage, func(w util.BufWriter, _ []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
		image := n.(*ast.Image)
		return renderLink(w, n, "![", image.Destination, image.Title, entering)
	})
}

// renderHeading makes all headings alike: the page has levels of its own.
func renderHeading(w util.BufWriter, _ []byte, _ ast.Node, entering bool) (ast.WalkStatus, error) {
	_, err := w.WriteString(map[bool]string{true: "<h3>", false: "</h3>\n"}[entering])
	return ast.WalkContinue, err
}

// renderCode also shows what follows the language on a fence's first line. Others drop it, and an
// agent could hide text there.
func renderCode(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	code := n.Lines().Value(source)
	if fenced, ok := n.(*ast.FencedCodeBlock); ok && fenced.Info != nil {
		// A single word is the language, which nobody needs to see.
		if info := fenced.Info.Segment.Value(source); bytes.ContainsAny(info, " \t") {
			code = append(append(bytes.Clone(info), '\n'), code...)
		}
	}
	_, err := w.WriteString("<pre>" + html.EscapeString(strings.TrimSuffix(string(code), "\n")) + "</pre>\n")
	return ast.WalkSkipChildren, err
}

// renderAutoLink renders <https://…>. What is no web address stays as it was written.
func renderAutoLink(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	label := html.EscapeString(string(n.(*ast.AutoLink).Label(source)))
	shown := "&lt;" + label + "&gt;"
	if link := webLink(string(n.(*ast.AutoLink).URL(source))); link != "" {
		shown = opening(link) + label + "</a>"
	}
	_, err := w.WriteString(shown)
	return ast.WalkSkipChildren, err
}

// renderLink renders the label as a link. If the address may not be followed, the whole link stays
// text, as it was written.
func renderLink(w util.BufWriter, n ast.Node, before string, address, title []byte, entering bool) (ast.WalkStatus,
	error,
) {
	// Judged and written in the same form, so that nothing can hide between the two.
	meant := string(resolved(address))
	to, link := html.EscapeString(meant), webLink(meant)
	shown := ""
	switch {
	case entering && link == "":
		shown = before
	case entering:
		if shown = opening(link); !n.HasChildren() {
			shown += to
		}
	default:
		if len(title) > 0 {
			shown = " &#34;" + html.EscapeString(string(resolved(title))) + "&#34;"
		}
		if link == "" {
			shown = "](" + to + shown + ")"
		} else {
			shown = "</a>" + shown
		}
	}
	_, err := w.WriteString(shown)
	return ast.WalkContinue, err
}

// resolved is an address or a title without escapes and character references. The parser leaves
// them in, and webLink must judge what a browser would follow.
func resolved(written []byte) []byte {
	return util.ResolveEntityNames(util.ResolveNumericReferences(util.UnescapePunctuations(written)))
}

// opening is the start tag of a link. The address has passed webLink.
func opening(link string) string {
	return `<a href="` + html.EscapeString(link) + `" rel="noreferrer noopener nofollow" target="_blank">`
}
