package ledger_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"

	"signalbox/internal/store/storetest"
)

// accident is what happens to a connection when the ledger commits through it.
type accident int

const (
	none           accident = iota
	loseAll                 // nothing of the batch arrives
	loseCommit              // all but the COMMIT arrives
	loseAnswer              // the COMMIT is done, and its answer is lost
	delay                   // the client gives up, and the batch arrives much later
	freeze                  // nothing moves any more, on this and on any connection
	loseAllGone             // as loseAll, and the server stays away
	loseAnswerGone          // as loseAnswer, and the server stays away
)

// proxy stands between a ledger and PostgreSQL, and understands enough of the
// protocol to see a commit of the ledger go by.
type proxy struct {
	address  string // of PostgreSQL by way of the proxy
	upstream string
	listener net.Listener
	wg       sync.WaitGroup

	mu    sync.Mutex
	next  accident      // for the next commit
	gone  bool          // new connections are refused
	open  chan struct{} // closed unless frozen
	links map[*link]bool
	late  []func() // batches that are still under way
}

func newProxy(t testing.TB) *proxy {
	t.Helper()
	u, err := url.Parse(storetest.Postgres(t))
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{upstream: u.Host, listener: listener, open: make(chan struct{}), links: map[*link]bool{}}
	close(p.open)
	q := u.Query()
	q.Set("sslmode", "disable")
	q.Set("idle_in_transaction_session_timeout", "4000")
	u.Host, u.RawQuery = listener.Addr().String(), q.Encode()
	p.address = u.String()
	p.wg.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

// strike arms the proxy for the next commit.
func (p *proxy) strike(a accident) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next = a
}

// leave cuts every connection and refuses new ones.
func (p *proxy) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone = true
	for l := range p.links {
		l.cut()
	}
}

// back lets connections through again.
func (p *proxy) back() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone = false
	select {
	case <-p.open:
	default:
		close(p.open)
	}
}

// deliver lets delayed batches arrive and waits until PostgreSQL has seen to them.
func (p *proxy) deliver() {
	p.mu.Lock()
	late := p.late
	p.late = nil
	p.mu.Unlock()
	for _, fn := range late {
		fn()
	}
}

func (p *proxy) close() {
	_ = p.listener.Close()
	p.back()
	p.leave()
	p.deliver()
	p.wg.Wait()
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.upstream)
		p.mu.Lock()
		if err != nil || p.gone {
			_ = client.Close()
			if err == nil {
				_ = server.Close()
			}
			p.mu.Unlock()
			continue
		}
		l := &link{p: p, client: client, server: server, statements: map[string]string{}}
		p.links[l] = true
		p.mu.Unlock()
		p.wg.Go(l.up)
		p.wg.Go(l.down)
	}
}

func (p *proxy) wait() {
	p.mu.Lock()
	open := p.open
	p.mu.Unlock()
	<-open
}

// link is one connection.
type link struct {
	p              *proxy
	client, server net.Conn
	statements     map[string]string // prepared, by name
	chunk          []byte            // what has come since the last Sync
	head           bool              // the chunk moves the ledger's head
	commitAt       int               // where in the chunk COMMIT begins, 0 for none

	mu      sync.Mutex
	loses   accident
	delayed bool // the server's side stays open for what is under way
}

func (l *link) cut() {
	_ = l.client.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.delayed {
		_ = l.server.Close()
	}
}

// up carries what the client says, a pipeline at a time.
func (l *link) up() {
	defer l.cut()
	var size [4]byte
	if _, err := io.ReadFull(l.client, size[:]); err != nil {
		return
	}
	rest := make([]byte, binary.BigEndian.Uint32(size[:])-4)
	if _, err := io.ReadFull(l.client, rest); err != nil {
		return
	}
	l.p.wait()
	if _, err := l.server.Write(append(size[:], rest...)); err != nil {
		return
	}
	for {
		kind, message, err := readMessage(l.client)
		if err != nil {
			return
		}
		l.look(kind, message[5:])
		l.chunk = append(l.chunk, message...)
		if strings.IndexByte("SHQXp", kind) < 0 {
			continue
		}
		if goOn := l.send(); !goOn {
			return
		}
		l.chunk, l.head, l.commitAt = nil, false, 0
	}
}

func readMessage(r io.Reader) (kind byte, message []byte, err error) {
	var begin [5]byte
	if _, err := io.ReadFull(r, begin[:]); err != nil {
		return 0, nil, err
	}
	message = make([]byte, 1+binary.BigEndian.Uint32(begin[1:]))
	copy(message, begin[:])
	_, err = io.ReadFull(r, message[5:])
	return begin[0], message, err
}

// look notes prepared statements, and which of them the client runs.
func (l *link) look(kind byte, payload []byte) {
	first, rest, _ := bytes.Cut(payload, []byte{0})
	second, _, _ := bytes.Cut(rest, []byte{0})
	if kind == 'P' {
		l.statements[string(first)] = string(second)
	} else if kind == 'B' {
		text := l.statements[string(second)]
		l.head = l.head || strings.HasPrefix(text, "UPDATE ledger_head")
		if text == "COMMIT" {
			l.commitAt = len(l.chunk)
		}
	}
}

// send passes a pipeline on, or has the accident that was asked for.
func (l *link) send() (goOn bool) {
	a := none
	if l.head && l.commitAt > 0 {
		l.p.mu.Lock()
		a, l.p.next = l.p.next, none
		if a == freeze {
			l.p.open = make(chan struct{})
		}
		l.p.mu.Unlock()
	}
	switch a {
	case loseAll:
		return false
	case loseAllGone:
		l.p.leave()
		return false
	case loseCommit:
		_, _ = l.server.Write(l.chunk[:l.commitAt])
		return false
	case delay:
		l.mu.Lock()
		l.delayed = true
		l.mu.Unlock()
		chunk, answered := l.chunk, make(chan struct{})
		l.p.mu.Lock()
		l.p.late = append(l.p.late, func() {
			_, _ = l.server.Write(chunk)
			_, _ = l.server.Write([]byte{'X', 0, 0, 0, 4}) // and nothing comes after it
			<-answered
		})
		l.p.mu.Unlock()
		_ = l.client.Close()
		l.p.wg.Go(func() { // down has ended, or ends as soon as it has an answer to pass on
			defer close(answered)
			_, _ = io.Copy(io.Discard, l.server)
			_ = l.server.Close()
		})
		return false
	case loseAnswer, loseAnswerGone:
		l.mu.Lock()
		l.loses = a
		l.mu.Unlock()
	}
	l.p.wait()
	_, err := l.server.Write(l.chunk)
	return err == nil
}

// down carries what the server says.
func (l *link) down() {
	defer l.cut()
	for {
		kind, message, err := readMessage(l.server)
		if err != nil {
			return
		}
		l.p.wait()
		l.mu.Lock()
		lost := l.loses
		l.mu.Unlock()
		if lost != none && kind == 'C' && bytes.Equal(message[5:], []byte("COMMIT\x00")) {
			if lost == loseAnswerGone {
				l.p.leave()
			}
			return
		}
		if _, err := l.client.Write(message); err != nil {
			return
		}
	}
}
