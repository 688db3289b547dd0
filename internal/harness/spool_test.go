package harness_test

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"signalbox/internal/behalf"
	"signalbox/internal/harness"
	"signalbox/internal/ledger"
	"signalbox/internal/roster"
	"signalbox/internal/store/storetest"
)

const offlineRules = `rules:
  - {name: reads, on: [action], when: 'agent.name == "coder" && event.tool in ["Read", "Grep"]', then: allow, on_unreachable: allow}
`

// client is a client with a spool, written here as docs/protocols/harness.md says, and not with the code of ours.
type client struct {
	*node
	conn  *harness.Conn
	key   ed25519.PrivateKey
	name  string
	lines []string
}

func (n *node) client(t *testing.T, who func(context.Context) (roster.Identity, error)) *client {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	c := &client{node: n, key: private, name: base64.RawURLEncoding.EncodeToString(public), conn: n.conn(harness.TransportSocket)}
	if who != nil {
		c.conn = n.harness.NewConn(harness.TransportSocket, who)
	}
	return c
}

// greet makes a handshake with the spool, and returns what it says of it.
func (c *client) greet(place string) map[string]any {
	c.T.Helper()
	text := strings.Replace(greetingText, `"session_id"`, fmt.Sprintf(`"spool":{"key":%q,"place":%q},"session_id"`, c.name, place), 1)
	a := c.read(c.harness.Handle(context.Background(), c.conn, []byte(text)).JSON)
	if a.Error != nil {
		c.T.Fatalf("%+v", a.Error)
	}
	got, _ := a.Result["spool"].(map[string]any)
	return got
}

func sha(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// add adds a step to the spool.
func (c *client) add(decision, tool, path string, policy int64) {
	c.addSaying("{}", decision, tool, path, policy)
}

// addSaying adds a step with metadata.
func (c *client) addSaying(metadata, decision, tool, path string, policy int64) {
	prev := sha(c.name)
	if n := len(c.lines); n > 0 {
		prev = sha(c.lines[n-1])
	}
	now := c.Now().UTC().Format(time.RFC3339Nano)
	event := fmt.Sprintf(`{"event_type":"pre_action","session_id":"s1","agent_id":"a1","timestamp":%q,"depth":0,`+
		`"payload":{"tool_name":%q,"arguments":{"file_path":%q}},"metadata":%s}`, now, tool, path, metadata)
	text := fmt.Sprintf(`{"spool":%q,"n":%d,"prev":%q,"at":%q,"decision":%q,"policy":%d,"list_from":%q,"event":%s`,
		c.name, len(c.lines)+1, prev, now, decision, policy, now, event)
	sig := ed25519.Sign(c.key, []byte("signalbox spool line\n"+text))
	c.lines = append(c.lines, text+`,"sig":"`+base64.RawURLEncoding.EncodeToString(sig)+`"}`)
}

// send sends lines, and returns how many were recorded.
func (c *client) send(lines ...string) (recorded int, problem string) {
	c.T.Helper()
	payload, err := json.Marshal(map[string]any{"key": c.name, "lines": lines})
	if err != nil {
		c.T.Fatal(err)
	}
	a := c.read(c.harness.Handle(context.Background(), c.conn, fmt.Appendf(nil, `{"jsonrpc":"2.0","id":"q","method":"ahp/query",`+
		`"params":{"session_id":"s1","agent_id":"a1","query_type":"spool","payload":%s}}`, payload)).JSON)
	if a.Error != nil {
		return 0, a.Error.Message
	}
	answer := a.Result["answer"].(map[string]any)
	return int(answer["recorded"].(float64)), ""
}

// entries are the entries of a kind, each as what it says.
func (n *node) entries(kind string, say func(ledger.Entry) string) (all []string) {
	n.T.Helper()
	found, err := n.Ledger.Entries(n.T.Context(), ledger.Query{Kinds: []string{kind}, Limit: 1000})
	if err != nil {
		n.T.Fatal(err)
	}
	for _, e := range found {
		all = append(all, say(e))
	}
	return all
}

func (n *node) steps() []string {
	return n.entries("step.unsupervised", func(e ledger.Entry) string {
		var b struct {
			Number                  int
			Tool, Decision, Problem string
		}
		if err := json.Unmarshal(e.Body, &b); err != nil {
			n.T.Fatal(err)
		}
		text := fmt.Sprintf("%d %s %s", b.Number, b.Decision, b.Tool)
		if b.Problem != "" {
			text += ": " + b.Problem
		}
		return text
	})
}

func (n *node) alarmKinds() (kinds []string) {
	n.T.Helper()
	all, err := n.Alarms.List(n.T.Context(), false)
	if err != nil {
		n.T.Fatal(err)
	}
	for _, a := range all {
		kinds = append(kinds, a.Kind)
	}
	slices.Sort(kinds)
	return kinds
}

func (n *node) version() int64 {
	number, _ := n.Book.Policy()
	return number
}

func TestAListHasWhatRulesAllowWithoutTheServer(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, harness.Config{})
		c := n.client(t, nil)
		tools := func() (list struct {
			Spool, Agent string
			Tools        []string
			Until, From  time.Time
		},
		) {
			t.Helper()
			g := c.greet("here")
			server, err := base64.RawURLEncoding.DecodeString(g["server"].(string))
			text := g["list"].(string)
			cut := len(text) - 96
			sig, wrong := base64.RawURLEncoding.DecodeString(text[cut+8 : len(text)-2])
			if err != nil || wrong != nil || !ed25519.Verify(server, []byte("signalbox offline list\n"+text[:cut]), sig) {
				t.Fatalf("the list is not signed: %s", text)
			}
			if err := json.Unmarshal([]byte(text), &list); err != nil {
				t.Fatal(err)
			}
			return list
		}
		if list := tools(); len(list.Tools) != 0 {
			t.Errorf("without a rule the list has %v", list.Tools)
		}
		n.Apply(offlineRules)
		list := tools()
		if diff := cmp.Diff([]string{"Read", "Grep"}, list.Tools); diff != "" || list.Spool != c.name ||
			list.Agent != n.agent.ID || list.Until.Sub(list.From) != 24*time.Hour {
			t.Errorf("%+v %s", list, diff)
		}
		// What the policy would not allow now is not on it: a rule before it, scopes.
		n.Apply("tools: {Grep: [grep.use]}\nrules:\n  - {name: no, on: [action], when: 'event.tool == \"Read\"', then: block}\n" +
			strings.TrimPrefix(offlineRules, "rules:\n"))
		if list := tools(); slices.Contains(list.Tools, "Read") {
			t.Errorf("a rule blocks Read, and the list has it: %v", list.Tools)
		}
		if n := len(n.entries("spool.opened", func(ledger.Entry) string { return "" })); n != 1 {
			t.Errorf("the spool was opened %d times", n)
		}
		n.WantClean()
	})
}

func TestAStepWithoutTheServerSaysForWhomItWas(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, harness.Config{})
		user := func(name string) string {
			u, _, err := n.Roster.AddUser(t.Context(), n.operator, roster.NewUser{Name: name})
			if err != nil {
				t.Fatal(err)
			}
			return u.ID
		}
		alice, bob := user("alice"), user("bob")
		user("eve")
		owned := func(name string) func(context.Context) (roster.Identity, error) {
			_, keys, err := n.Roster.AddAgent(t.Context(), n.operator,
				roster.NewAgent{Name: name, Owner: "alice", ActsFor: []string{"bob"}})
			if err != nil {
				t.Fatal(err)
			}
			return func(ctx context.Context) (roster.Identity, error) { return n.Roster.Authenticate(ctx, keys[0].Secret) }
		}
		c := n.client(t, owned("reader"))
		n.Apply(strings.NewReplacer("rules:\n", "rules:\n"+
			"  - {name: shared, on: [action], when: 'event.tool == \"Glob\" && recent.allowed(\"1h\", \"user\") >= 1', then: block}\n",
			`"coder"`, `"reader"`).Replace(offlineRules))
		c.greet("here")
		c.add("allow", "Read", "/1", n.version())
		c.addSaying(`{"user":"bob"}`, "refused", "Bash", "/2", 0)
		c.addSaying(`{"user":"eve"}`, "refused", "Bash", "/3", 0)
		if got, problem := c.send(c.lines...); got != 3 {
			t.Fatalf("%d were recorded (%s)", got, problem)
		}
		got := n.entries("step.unsupervised", func(e ledger.Entry) string {
			of := behalf.Read(&e)[0]
			return of.User + " " + of.Claimed
		})
		want := []string{alice + " ", bob + " ", alice + " eve"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		// What was allowed without the server uses up what another agent of the same user has left.
		other := n.harness.NewConn(harness.TransportHTTP, owned("writer"))
		if a := n.ask(other, "pre_action", "s9", map[string]any{"tool_name": "Glob"}); a.Result["decision"] != "block" {
			t.Errorf("%+v", a)
		}
		n.WantClean()
	})
}

func TestASpoolIsRecordedOnceAndInOrder(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, harness.Config{})
		n.Apply(strings.Replace(offlineRules, "rules:\n", "rules:\n"+
			"  - {name: many, on: [action], when: 'event.tool == \"Glob\" && recent.actions(\"1h\") >= 2', then: block}\n", 1))
		c := n.client(t, nil)
		c.add("allow", "Read", "/1", n.version())
		if _, problem := c.send(c.lines...); !strings.Contains(problem, "never registered") {
			t.Errorf("a spool that nobody registered: %q", problem)
		}
		c.greet("here")
		if a := n.ask(c.conn, "pre_action", "s9", map[string]any{"tool_name": "Glob"}); a.Result["decision"] != "allow" {
			t.Errorf("%+v", a)
		}
		c.add("refused", "Bash", "/2", 0)
		c.add("allow", "Grep", "/3", n.version())
		if got, problem := c.send(c.lines[:2]...); got != 2 {
			t.Errorf("%d were recorded (%s)", got, problem)
		}
		for range 2 { // as a client that was killed before it could forget
			_, problem := c.send(c.lines...)
			if problem != "" {
				t.Error(problem)
			}
		}
		want := []string{"1 allow Read", "2 refused Bash", "3 allow Grep"}
		if diff := cmp.Diff(want, n.steps()); diff != "" {
			t.Error(diff)
		}
		if kinds := n.alarmKinds(); kinds != nil {
			t.Errorf("alarms: %v", kinds)
		}
		// What was allowed alone counts.
		if a := n.ask(c.conn, "pre_action", "s9", map[string]any{"tool_name": "Glob"}); a.Result["decision"] != "block" {
			t.Errorf("what was allowed without the server does not count: %+v", a)
		}
		n.WantClean()
	})
}

func TestASpoolThatDoesNotFitIsSeen(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, harness.Config{})
		n.Apply(offlineRules)
		for _, c := range []struct {
			name   string
			change func(*client) []string
			want   []string
		}{
			{"edited", func(c *client) []string {
				c.lines[1] = strings.Replace(c.lines[1], "/2", "/9", 1)
				return c.lines
			}, []string{"1 allow Read", "3 allow Read: the step before, 2, is missing"}},
			{
				"removed", func(c *client) []string { return slices.Delete(c.lines, 1, 2) },
				[]string{"1 allow Read", "3 allow Read: the step before, 2, is missing"},
			},
			{
				"reordered", func(c *client) []string { c.lines[1], c.lines[2] = c.lines[2], c.lines[1]; return c.lines },
				[]string{"1 allow Read", "3 allow Read: the step before, 2, is missing", "2 allow Read"},
			},
			{"written anew", func(c *client) []string {
				c.send(c.lines...)
				c.lines = c.lines[:1]
				c.add("refused", "Read", "/other", 0)
				return c.lines
			}, []string{"1 allow Read", "2 allow Read", "3 allow Read"}},
			{"of another spool", func(c *client) []string {
				other := n.client(t, nil)
				other.add("allow", "Read", "/1", n.version())
				return append(c.lines, other.lines...)
			}, []string{"1 allow Read", "2 allow Read", "3 allow Read"}},
			{"a tool that no rule names", func(c *client) []string {
				c.add("allow", "Bash", "/4", n.version())
				return c.lines
			}, []string{"1 allow Read", "2 allow Read", "3 allow Read", fmt.Sprintf(
				"4 allow Bash: version %d of the policy does not allow Bash to coder while the server cannot be reached", n.version())}},
			{"a policy that does not exist", func(c *client) []string {
				c.add("allow", "Read", "/4", 99)
				return c.lines
			}, []string{
				"1 allow Read", "2 allow Read", "3 allow Read",
				"4 allow Read: there is no version 99 of the policy, by whose list it was allowed",
			}},
			{"a list that has ended", func(c *client) []string {
				c.add("allow", "Read", "/4", n.version())
				line, _, _ := strings.Cut(c.lines[3], `,"sig"`)
				at := strings.Index(line, `"list_from":"`) + len(`"list_from":"`)
				line = line[:at] + "2020" + line[at+4:]
				sig := ed25519.Sign(c.key, []byte("signalbox spool line\n"+line))
				c.lines[3] = line + `,"sig":"` + base64.RawURLEncoding.EncodeToString(sig) + `"}`
				return c.lines
			}, []string{
				"1 allow Read", "2 allow Read", "3 allow Read",
				"4 allow Read: the list by which it was allowed did not hold at that time",
			}},
		} {
			before := len(n.steps())
			cl := n.client(t, nil)
			cl.greet("")
			for _, path := range []string{"/1", "/2", "/3"} {
				cl.add("allow", "Read", path, n.version())
			}
			brokenBefore := len(n.entries("spool.broken", func(ledger.Entry) string { return "" }))
			if _, problem := cl.send(c.change(cl)...); problem != "" {
				t.Errorf("%s: %s", c.name, problem)
			}
			if diff := cmp.Diff(c.want, n.steps()[before:]); diff != "" {
				t.Errorf("%s: %s", c.name, diff)
			}
			if got := len(n.entries("spool.broken", func(ledger.Entry) string { return "" })); got != brokenBefore+1 {
				t.Errorf("%s: there are %d entries about broken spools, and were %d", c.name, got, brokenBefore)
			}
		}
		if diff := cmp.Diff([]string{"spool_broken"}, n.alarmKinds()); diff != "" {
			t.Error(diff)
		}
		n.WantClean()
	})
}

func TestASpoolBelongsToOneAgent(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, harness.Config{})
		n.Apply(offlineRules)
		c := n.client(t, nil)
		c.greet("host:/here")
		c.add("allow", "Read", "/1", n.version())
		_, key := n.AgentWithKey("thief")
		thief := n.client(t, func(ctx context.Context) (roster.Identity, error) { return n.Roster.Authenticate(ctx, key) })
		thief.key, thief.name, thief.lines = c.key, c.name, c.lines
		if g := thief.greet("host:/here"); g["list"] != nil || g["refused"] == nil {
			t.Errorf("another agent got %v", g)
		}
		if got, problem := thief.send(thief.lines...); got != 0 || !strings.Contains(problem, "another agent") {
			t.Errorf("%d were recorded, %q", got, problem)
		}
		// A second spool at the same place is one that took the place of the first.
		n.client(t, nil).greet("host:/elsewhere")
		if diff := cmp.Diff([]string{"spool_foreign"}, n.alarmKinds()); diff != "" {
			t.Error(diff)
		}
		n.client(t, nil).greet("host:/here")
		if diff := cmp.Diff([]string{"spool_foreign", "spool_replaced"}, n.alarmKinds()); diff != "" {
			t.Error(diff)
		}
		for _, bad := range []string{"", "x", c.name[1:], c.name + "A", "../" + c.name[3:]} {
			one := n.client(t, nil)
			one.name = bad
			if g := one.greet("p"); g["refused"] == nil || g["list"] != nil {
				t.Errorf("the key %q: %v", bad, g)
			}
		}
		n.WantClean()
	})
}
