package ledger

import (
	"bufio"
	"context"
	"encoding/base64"
	"io"

	"signalbox/internal/store"
	"signalbox/internal/wire"
)

// An export is text (LED-30). After the header come the lines of the checkpoint that the
// file is complete for, a line "---", and one line per entry: the record, which is
// JSON, a tab, the salt, a tab, the body, both in base64. An erased body is "-", and so is
// its salt.
const (
	exportHeader = "signalbox ledger export v1"
	exportRule   = "---"
	erasedBody   = "-"
)

// Export writes every entry under a fresh checkpoint; of a ledger that is not what
// was signed, those under the last one. It is for those who may see every workspace.
func (l *Ledger) Export(ctx context.Context, w io.Writer) error {
	if err := wire.Unconfined(ctx, "This shows the records of"); err != nil {
		return err
	}
	if l.refusal() == nil {
		head, err := l.Head(ctx)
		if err != nil {
			return err
		}
		if _, err := l.grow(ctx, head); err != nil {
			return err
		}
	}
	signed, size, err := l.Signed(ctx)
	if err != nil {
		return err
	}
	return l.ExportUnder(ctx, w, signed, size)
}

// ExportUnder is Export under a checkpoint over size entries that the caller has, such as one with cosignatures.
func (l *Ledger) ExportUnder(ctx context.Context, w io.Writer, signed []byte, size int64) error {
	if err := wire.Unconfined(ctx, "This shows the records of"); err != nil {
		return err
	}
	out := bufio.NewWriterSize(w, 1<<16)
	_, _ = out.WriteString(exportHeader + "\n" + string(signed) + exportRule + "\n")
	for after := int64(0); after < size; {
		n, err := l.exportPage(ctx, out, after, min(Page, size-after))
		if err != nil {
			return err
		}
		after += n
	}
	return out.Flush()
}

// appendLine appends a record, its salt and its body, with tabs between them.
func appendLine(line, rec, salt, body []byte) []byte {
	line = append(append(line, rec...), '\t')
	if salt == nil {
		return append(line, erasedBody+"\t"+erasedBody...)
	}
	line = append(base64.StdEncoding.AppendEncode(line, salt), '\t')
	return base64.StdEncoding.AppendEncode(line, body)
}

// exportPage writes the entries after a number and returns how many it wrote. LED-31: an
// entry that is missing is an error, never a shorter file.
func (l *Ledger) exportPage(ctx context.Context, out *bufio.Writer, after, limit int64) (n int64, err error) {
	var line []byte
	err = store.Each(l.db.Reading(ctx), func(scan store.Scan) error {
		var seq int64
		var rec, salt, body []byte
		if err := scan(&seq, &rec, &salt, &body); err != nil {
			return err
		}
		n++
		if seq != after+n {
			return gap(after+n, seq)
		}
		line = appendLine(line[:0], rec, salt, body)
		_, err := out.Write(append(line, '\n'))
		return err
	}, "SELECT seq, record, salt, body FROM ledger_entry WHERE seq > $1 ORDER BY seq LIMIT $2", after, limit)
	if err == nil && n < limit {
		err = missing(after + n + 1)
	}
	return n, err
}
