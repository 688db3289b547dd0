package main

import (
	"bufio"
	"html"
	"io"
	"io/fs"
	"mime/quotedprintable"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"signalbox/internal/address"
	"signalbox/internal/testbed"
)

// browser is a person who has signed in.
type browser struct {
	t     *testing.T
	base  string
	first string // the page that signing in leads to
	*http.Client
}

func (p *process) signIn(t *testing.T) *browser {
	t.Helper()
	jar, _ := cookiejar.New(nil) // never fails
	b := &browser{t: t, base: p.url, Client: &http.Client{Jar: jar, Timeout: time.Minute}}
	code := regexp.MustCompile(`code=([A-Z0-9]+)`).FindStringSubmatch(mustRun(t, p.dir, "login"))
	form := url.Values{"code": {code[1]}}.Encode()
	status, page, _ := testbed.Call(t, b.Client, http.MethodPost, p.url+address.Login.Of("code"), form, map[string]string{
		"Content-Type": "application/x-www-form-urlencoded", "Sec-Fetch-Site": "same-origin",
	})
	if status != http.StatusOK {
		t.Fatalf("the code does not sign in: %d %s", status, page)
	}
	b.first = page
	return b
}

// open opens a page of ours.
func (b *browser) open(link string) (status int, page string) {
	b.t.Helper()
	status, page, _ = testbed.Call(b.t, b.Client, http.MethodGet, link, "", nil)
	return status, page
}

// hrefs wants white space before the attribute's name: base64 in another attribute may end in src= too.
var hrefs = regexp.MustCompile(`\s(?:href|src)="([^"]+)"`)

// crawl opens every page that can be reached, and returns the links that lead nowhere, each
// with the page that has it.
func (b *browser) crawl(from string) (seen, broken []string) {
	b.t.Helper()
	type step struct{ link, on string }
	for next := []step{{from, ""}}; len(next) > 0; next = next[1:] {
		at := next[0]
		if slices.Contains(seen, at.link) {
			continue
		}
		seen = append(seen, at.link)
		status, page := b.open(b.base + at.link)
		if status != http.StatusOK {
			broken = append(broken, at.link+" on "+at.on)
			continue
		}
		here, _ := url.Parse(at.link)
		for _, found := range hrefs.FindAllStringSubmatch(page, -1) {
			to, err := here.Parse(html.UnescapeString(found[1]))
			if err != nil {
				broken = append(broken, found[1]+" on "+at.link)
				continue
			}
			to.Fragment = ""
			// Lists are read from many pages: what differs by its query is read a few times.
			like := func(link string) bool { return strings.HasPrefix(link, to.Path+"?") }
			if to.Host != "" || to.Scheme != "" ||
				to.RawQuery != "" && len(slices.DeleteFunc(slices.Clone(seen), func(l string) bool {
					return !like(l)
				})) > 5 {
				continue
			}
			next = append(next, step{to.String(), at.link})
		}
	}
	return seen, broken
}

// standIn is the services that people are told through: chats, a topic, a webhook, and a
// mail server. It takes everything, and keeps the addresses of ours that it was sent.
type standIn struct {
	url, smtp string
	heard     chan string // what came, and through which
}

func newStandIn(t *testing.T) *standIn {
	t.Helper()
	s := &standIn{heard: make(chan string, 1000)}
	web := testbed.ServeHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/getUpdates") { // nobody answers in the chat
			select {
			case <-r.Context().Done():
			case <-time.After(time.Second):
			}
			_, _ = io.WriteString(w, `{"ok":true,"result":[]}`)
			return
		}
		body, _ := io.ReadAll(r.Body)
		text, err := url.QueryUnescape(string(body))
		if err != nil {
			text = string(body)
		}
		_, service, _ := strings.Cut(r.URL.Path, "/")
		service, _, _ = strings.Cut(service, "/")
		s.heard <- service + " " + strings.ReplaceAll(text, `\/`, "/")
		_, _ = io.WriteString(w,
			`{"ok":true,"channel":"C123","ts":"1.2","result":{"message_id":1,"id":1,"is_bot":true,"first_name":"b",`+
				`"chat":{"id":5}}}`)
	}))
	mail := testbed.Serve(t, "tcp", "127.0.0.1:0", s.takeMail)
	s.url, s.smtp = web, "smtp://"+mail.Addr().String()
	return s
}

// takeMail is as much of SMTP as a message needs.
func (s *standIn) takeMail(conn net.Conn) {
	_ = conn.SetDeadline(time.Now().Add(testbed.Patience))
	say := func(line string) { _, _ = io.WriteString(conn, line+"\r\n") }
	say("220 localhost")
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		switch word, _, _ := strings.Cut(strings.ToUpper(lines.Text()), " "); word {
		case "DATA":
			say("354 go on")
			var letter strings.Builder
			for lines.Scan() && lines.Text() != "." {
				letter.WriteString(lines.Text() + "\n")
			}
			plain, _ := io.ReadAll(quotedprintable.NewReader(strings.NewReader(letter.String())))
			s.heard <- "smtp " + string(plain)
			say("250 taken")
		case "QUIT":
			say("221 bye")
			return
		default:
			say("250 yes")
		}
	}
}

func TestEveryLinkThatWeShowLeadsSomewhere(t *testing.T) {
	t.Parallel()
	people := newStandIn(t)
	data := t.TempDir()
	settings := `notify:
  slack: {webhook: "` + people.url + `/slack-hook", token: xoxb-1, channel: C123, api: "` + people.url + `/slack-app"}
  telegram: {token: "1:a", chat: "5", api: "` + people.url + `/telegram"}
  ntfy: {url: "` + people.url + `/ntfy/topic"}
  webhook: "` + people.url + `/webhook"
  email: {smtp: "` + people.smtp + `", from: box@example.com, to: [ann@example.com]}
`
	configure(t, data, settings)
	p := up(t, data)
	mustRun(t, p.dir, "demo", "--once")
	b := p.signIn(t)

	t.Run("in notifications", func(t *testing.T) {
		b.t = t
		missing := []string{"slack-hook", "slack-app", "telegram", "ntfy", "smtp"}
		ours := regexp.MustCompile(regexp.QuoteMeta(p.url) + `[^\s"'<>\\|)]*`)
		for len(missing) > 0 {
			said := testbed.Receive(t, "a notification by "+strings.Join(missing, ", "), people.heard)
			through, text, _ := strings.Cut(said, " ")
			for _, link := range ours.FindAllString(text, -1) {
				if status, page := b.open(html.UnescapeString(link)); status != http.StatusOK ||
					!strings.Contains(page, "</html>") {
					t.Errorf("%s links to %s: %d", through, link, status)
				}
				missing = slices.DeleteFunc(missing, func(name string) bool { return name == through })
			}
		}
	})
	t.Run("on pages", func(t *testing.T) {
		b.t = t
		seen, broken := b.crawl(address.Dashboard.At())
		for _, link := range broken {
			t.Error(link)
		}
		for _, page := range []address.Page{
			address.Inbox, address.Overview, address.Agents, address.Mail, address.Tasks,
			address.Sessions, address.Runs, address.Handoffs, address.Ledger, address.Deliveries, address.Policy, address.Settings,
		} {
			if !slices.Contains(seen, page.At()) {
				t.Errorf("nothing leads to %s", page)
			}
		}
		if len(seen) < 60 {
			t.Errorf("only %d pages were found", len(seen))
		}
	})
	t.Run("of the API", p.wantCalls)
}

// wantCalls looks for every call that a text of the program names among those that there are.
func (p *process) wantCalls(t *testing.T) {
	var described struct {
		Paths map[string]map[string]any
	}
	p.get("/openapi.json", &described)
	served := func(method, path string) bool {
		parts := strings.Split(strings.TrimSuffix(path, "/"), "/")
		for pattern, methods := range described.Paths {
			have := strings.Split(pattern, "/")
			same := len(have) == len(parts)
			for i := 0; same && i < len(have); i++ {
				same = have[i] == parts[i] || strings.HasPrefix(have[i], "{") && parts[i] != ""
			}
			if same && methods[strings.ToLower(method)] != nil {
				return true
			}
		}
		return false
	}
	named := regexp.MustCompile(`\b(GET|POST|PUT|PATCH|DELETE) (/(?:ops|amp|runs|v1|ledger|ahp|mcp|openapi)[^\s"'` + "`" +
		`?,;)]*)`)
	root, found := filepath.Join("..", ".."), 0
	err := filepath.WalkDir(filepath.Join(root, "internal"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		for _, text := range literals(t, path) {
			for _, call := range named.FindAllStringSubmatch(text, -1) {
				found++
				if to := strings.TrimRight(call[2], ".:…"); to != "/openapi.json" && !served(call[1], to) {
					t.Errorf("%s names %s %s, which is not there", path, call[1], to)
				}
			}
		}
		return nil
	})
	if err != nil || found < 20 {
		t.Errorf("only %d calls are named: %v", found, err)
	}
}
