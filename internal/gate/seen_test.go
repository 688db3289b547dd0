package gate_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/gate"
	"signalbox/internal/ledger"
	"signalbox/internal/roster"
	"signalbox/internal/secret/secrettest"
	"signalbox/internal/store/storetest"
	"signalbox/internal/wire"
)

// shown is a gate as the operators' API shows it.
func (n *node) shown(as roster.Identity, id string) (g gate.Gate) {
	n.T.Helper()
	_, answer := n.call(as, "GET /ops/gates/"+id, "")
	n.Must(wire.UnmarshalPart([]byte(answer), &g))
	return g
}

func TestAVoteNamesWhatWasSeen(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, t.TempDir())
		ada, bob, eve := n.operator("ada", "operator"), n.operator("bob", "operator"), n.operator("eve", "viewer")
		first, other := n.open(gate.Rules{Quorum: 2}), n.open(gate.Rules{Quorum: 2})
		g := n.shown(eve, first)
		if len(g.Digest) != 64 || g.Digest == g.ActionDigest || g.Digest == n.shown(eve, other).Digest {
			t.Fatalf("the digests %s and %s", g.Digest, n.shown(eve, other).Digest)
		}
		if again := g.ShownDigest(); again != g.Digest {
			t.Errorf("who has the gate computes %s, and the server %s", again, g.Digest)
		}
		at := "POST /ops/gates/" + first
		for _, c := range []struct {
			name, body string
			as         roster.Identity
			status     int
			says       string
		}{
			{"that of another gate", vote(n.shown(eve, other).Digest), ada, 409, `"member":"title","now":"Send it"`},
			{"the action's", vote(g.ActionDigest), ada, 409, "This is the action_digest"},
			{"too little of it", vote(g.Digest[:15]), ada, 409, "not_what_was_shown"},
			{"more than it", vote(g.Digest + "0"), ada, 409, "not_what_was_shown"},
			{"a viewer's", vote(g.Digest), eve, 403, "may not decide"},
			{"the beginning", vote(g.Digest[:16]), ada, 200, `"digest":"` + g.Digest[:16]},
			{"votes so far are not a part of it", vote(g.Digest), bob, 200, `"status":"approved"`},
		} {
			if status, answer := n.call(c.as, at+"/approve", c.body); status != c.status || !strings.Contains(answer, c.says) {
				t.Errorf("%s: %d %s", c.name, status, answer)
			}
		}
		entries, err := n.Ledger.Entries(t.Context(), ledger.Query{Kinds: []string{"gate.voted"}})
		if err != nil || len(entries) != 2 || !strings.Contains(string(entries[1].Body), `"digest":"`+g.Digest+`"`) {
			t.Errorf("the ledger has %v %v", entries, err)
		}
		if votes := n.get(first).Votes; votes[1].Digest != g.Digest {
			t.Errorf("%+v", votes)
		}
		if status, answer := n.call(ada, "POST /ops/gates/"+other+"/approve", ""); status != 200 {
			t.Errorf("without a digest: %d %s", status, answer)
		}
		n.WantClean()
	})
}

func vote(digest string) string { return fmt.Sprintf(`{"note":"n","digest":%q}`, digest) }

// Whoever changes one of these after a page was loaded has changed what somebody is about to approve.
func TestEverythingThatIsReadBeforeADecisionIsInTheDigest(t *testing.T) {
	t.Parallel()
	due := time.Unix(1_700_000_000, 0)
	base := func() gate.Gate {
		return gate.Gate{
			ID: "gate_1", Workspace: "w", Project: "p", Agent: "a", Origin: gate.Origin{Protocol: "amp", Reference: "r"},
			Title: "t", Summary: "s", ProposedAction: "x", Facts: []gate.Fact{{Name: "cost", Value: "1"}},
			Artifacts: []wire.Raw{wire.Raw(`{"type":"text","content":"c"}`)}, Rule: "rule", Reason: "why", Risk: "low",
			ActionDigest: "d", Quorum: 2, Approvers: []string{"operator"}, ExpiresAt: &due, OnExpiry: gate.Rejected,
		}
	}
	later, seen := due.Add(time.Second), map[string]string{}
	first := base()
	seen[first.ShownDigest()] = "the gate itself"
	for name, change := range map[string]func(g *gate.Gate){
		"id":        func(g *gate.Gate) { g.ID = "gate_2" },
		"workspace": func(g *gate.Gate) { g.Workspace = "v" },
		"project":   func(g *gate.Gate) { g.Project = "q" },
		"agent":     func(g *gate.Gate) { g.Agent = "b" },
		"origin":    func(g *gate.Gate) { g.Origin.Reference = "q" },
		"run":       func(g *gate.Gate) { g.Origin.Run = "run_1" },
		"context":   func(g *gate.Gate) { g.Context = []gate.Fact{{Name: "last prompt", Value: "go on"}} },
		"title":     func(g *gate.Gate) { g.Title = "s" },
		"summary":   func(g *gate.Gate) { g.Summary = "t" },
		"action":    func(g *gate.Gate) { g.ProposedAction = "y" },
		"facts":     func(g *gate.Gate) { g.Facts[0].Value = "2" },
		"artifacts": func(g *gate.Gate) { g.Artifacts[0] = wire.Raw(`{"type":"text","content":"e"}`) },
		"rule":      func(g *gate.Gate) { g.Rule = "another" },
		"reason":    func(g *gate.Gate) { g.Reason = "because" },
		"risk":      func(g *gate.Gate) { g.Risk = "high" },
		"digest":    func(g *gate.Gate) { g.ActionDigest = "e" },
		"quorum":    func(g *gate.Gate) { g.Quorum = 1 },
		"approvers": func(g *gate.Gate) { g.Approvers = []string{"admin"} },
		"expiry":    func(g *gate.Gate) { g.ExpiresAt = &later },
		"on expiry": func(g *gate.Gate) { g.OnExpiry = gate.Approved },
		"a change that an approval carries": func(g *gate.Gate) {
			g.Votes = []gate.Vote{{Operator: "ada", Approve: true, Modified: wire.Raw(`{"to":"eve"}`)}}
		},
		"a change that a rejection carries": func(g *gate.Gate) {
			g.Votes = []gate.Vote{{Operator: "ada", Modified: wire.Raw(`{"to":"eve"}`)}}
		},
	} {
		g := base()
		change(&g)
		digest := g.ShownDigest()
		if before, known := seen[digest]; known {
			t.Errorf("%s does not tell it from %s", name, before)
		}
		seen[digest] = name
	}
	same := base()
	same.Votes, same.Artifacts[0] = []gate.Vote{{Operator: "ada", Approve: true, Note: "n"}},
		wire.Raw(`{ "content": "c", "type": "text" }`)
	if same.ShownDigest() != first.ShownDigest() {
		t.Error("a vote, or white space, changes what is shown")
	}
}

func TestAnApprovalDoesNotBecomeOneOfAChangeThatItsVoterHasNotSeen(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, t.TempDir())
		ada, bob, cem := n.operator("ada", "operator"), n.operator("bob", "operator"), n.operator("cem", "operator")
		id := n.open(gate.Rules{Quorum: 3, RejectNeeds: 2})
		before := n.shown(bob, id).Digest
		for _, c := range []struct {
			name, call, body string
			as               roster.Identity
			status           int
			says             string
		}{
			{"a change", "approve", `{"modified":{"amount": 10}}`, ada, 200, `"modified":{"amount":10}`},
			{"who has not seen it", "approve", vote(before), bob, 409, `[{"member":"approved_as","now":{"amount":10}}]`},
			{"another change", "approve", `{"modified":{"amount":99}}`, bob, 409, "ada has voted before you"},
			{"the same change", "approve", `{"modified":{"amount":10}}`, bob, 200, `"status":"pending"`},
			{"who has seen it", "approve", vote(n.changed(before, id)), cem, 200, `"modified":{"amount":10}`},
		} {
			if status, answer := n.call(c.as, "POST /ops/gates/"+id+"/"+c.call, c.body); status != c.status ||
				!strings.Contains(answer, c.says) {
				t.Errorf("%s: %d %s", c.name, status, answer)
			}
		}
		if g := n.get(id); g.Status != gate.Approved || string(g.Modified) != `{"amount":10}` {
			t.Errorf("%s with %s", g.Status, g.Modified)
		}
		id = n.open(gate.Rules{Quorum: 2})
		n.vote(ada, id, approve(""))
		if _, err := n.gates.Vote(t.Context(), bob, id,
			gate.Ballot{Approve: true, Modified: wire.Raw(`{"to":"eve"}`)}); !fault.Is(err, fault.Conflict) {
			t.Errorf("ada's approval would become one of a change: %v", err)
		}
		n.WantClean()
	})
}

// changed is the digest that a gate has once an approval with the amount of ten is there.
func (n *node) changed(before, id string) string {
	n.T.Helper()
	g := n.get(id)
	g.Votes = []gate.Vote{{Operator: "ada", Approve: true, Modified: wire.Raw(`{"amount":10}`)}}
	if g.ShownDigest() == before {
		n.T.Error("a change does not change the digest")
	}
	return g.ShownDigest()
}

func (n *node) vote(as roster.Identity, id string, b gate.Ballot) gate.Gate {
	n.T.Helper()
	g, err := n.gates.Vote(n.T.Context(), as, id, b)
	n.Must(err)
	return g
}

func TestAQuorumCountsPeople(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, t.TempDir())
		ctx := t.Context()
		ada, bob, cem := n.operator("ada", "operator"), n.operator("bob", "operator"), n.operator("cem", "operator")
		for _, from := range []roster.Identity{bob, cem} {
			n.Must(n.gates.Delegate(ctx, from, "ada", n.Now().Add(time.Hour)))
		}
		own, forBob, forCem := approve(""), gate.Ballot{Approve: true, For: "bob"}, gate.Ballot{Approve: true, For: "cem"}
		for _, c := range []struct {
			name          string
			first, second gate.Ballot
		}{
			{"her own, then another's", own, forBob},
			{"another's, then her own", forBob, own},
			{"those of two", forBob, forCem},
		} {
			id := n.open(gate.Rules{Quorum: 2})
			if g := n.vote(ada, id, c.first); g.Status != gate.Pending {
				t.Errorf("%s: %s after the first", c.name, g.Status)
			}
			if _, err := n.gates.Vote(ctx, ada, id, c.second); !fault.Is(err, fault.Conflict) ||
				!strings.Contains(err.Error(), "A quorum counts people") {
				t.Errorf("%s: %v", c.name, err)
			}
		}
		id := n.open(gate.Rules{Quorum: 2})
		n.vote(ada, id, own)
		if g := n.vote(bob, id, own); g.Status != gate.Approved {
			t.Errorf("two people: %s", g.Status)
		}
		n.WantClean()
	})
	// As an older version has counted them: who votes for others is in the ledger twice.
	votes := []gate.Vote{{Operator: "ada", CastBy: "ada", Approve: true}, {Operator: "bob", CastBy: "ada", Approve: true}}
	if status := (gate.Rules{Quorum: 2}).Tally(votes); status != gate.Pending {
		t.Errorf("one person is a quorum of two: %s", status)
	}
}

func TestARejectionNeedsItsReason(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, t.TempDir())
		ada, id := n.operator("ada", "operator"), n.open(gate.Rules{})
		for _, body := range []string{"", `{}`, `{"note":" \n "}`} {
			status, answer := n.call(ada, "POST /ops/gates/"+id+"/reject", body)
			var refused struct{ Error, Field string }
			if err := json.Unmarshal([]byte(answer), &refused); err != nil || status != 400 ||
				refused.Error != "invalid_payload" || refused.Field != "note" {
				t.Errorf("%q: %d %s", body, status, answer)
			}
		}
		if g := n.get(id); g.Status != gate.Pending || len(g.Votes) != 0 {
			t.Errorf("%+v", g)
		}
	})
}

// noise is bytes that are neither text nor alike.
func noise(size int) []byte {
	out, r := make([]byte, size), rand.New(rand.NewPCG(1, uint64(size)))
	for i := range out {
		out[i] = byte(r.Uint32())
	}
	return out
}

// sumOf is the SHA-256 in hex.
func sumOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// longOne is an opening whose artifacts the test adds.
func longOne() gate.Opening {
	return gate.Opening{Agent: "agent_x", AgentName: "x", Requester: "agent:x", Shown: gate.Shown{Title: "Run it"}}
}

func TestWhatIsNotShownIsKeptByteForByte(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, t.TempDir())
		eve := n.operator("eve", "viewer")
		small, whole := []byte(`{"path":"a"}`), []byte(strings.Repeat("line \"1\"\n", 1<<20/9)+"the last line")
		long, largest := noise(gate.MaxWhole+1), noise(gate.MaxKept)
		tail := wire.Raw(`{"command":"` + strings.Repeat("ls;", gate.MaxWhole/3) + `rm -rf /"}`)
		o := longOne()
		o.Attach("small", small)
		o.Attach("whole", whole)
		o.Attach("lo\xffng", long)
		o.Shown.Artifacts = append(o.Shown.Artifacts, tail)
		o.Attach("largest", largest)
		id := n.openAs("default", o)
		g := n.shown(eve, id)
		if len(g.Artifacts) != 5 || len(g.Unshown) != 3 {
			t.Fatalf("%d artifacts, not shown: %v", len(g.Artifacts), g.Unshown)
		}
		if a := gate.ReadArtifact(g.Artifacts[0]); a.Type != "json" || a.Title != "small" || a.Text != string(small) {
			t.Errorf("%+v", a)
		}
		if a := gate.ReadArtifact(g.Artifacts[1]); a.Type != "text" || a.Text != string(whole) {
			t.Errorf("a text of 1 MiB is not whole: %d bytes", len(a.Text))
		}
		unseen := int64(0)
		for i, want := range [][]byte{small, whole, long, tail, largest} {
			status, got := n.call(eve, fmt.Sprintf("GET /ops/gates/%s/artifacts/%d", id, i+1), "")
			if status != 200 || got != string(want) {
				t.Errorf("artifact %d: %d, %d bytes of %d", i+1, status, len(got), len(want))
			}
			if i < 2 {
				continue
			}
			u := g.Unshown[i-2]
			if u.Artifact != i+1 || u.Bytes != int64(len(want)) || u.SHA256 != sumOf(want) || u.Shown != 64<<10 {
				t.Errorf("%+v", u)
			}
			unseen += u.Rest()
		}
		if g.Unseen() != unseen || g.ShownDigest() != g.Digest {
			t.Errorf("%d bytes are not shown, want %d", g.Unseen(), unseen)
		}
		// What a vote names says what was not shown.
		g.Unshown[0].SHA256 = sumOf(small)
		if g.ShownDigest() == g.Digest {
			t.Error("the digest is that of any other bytes, too")
		}
		for _, number := range []string{"0", "6", "-1", "x", "1x"} {
			if status, answer := n.call(eve, "GET /ops/gates/"+id+"/artifacts/"+number, ""); status != 404 {
				t.Errorf("artifact %s: %d %.200s", number, status, answer)
			}
		}

		// Retention may take it, and says so; the gate can still be decided.
		_, err := n.Ledger.Erase(t.Context(), n.Now().Add(time.Hour))
		n.Must(err)
		status, answer := n.call(eve, "GET /ops/gates/"+id+"/artifacts/3", "")
		if status != 404 || !strings.Contains(answer, "was erased") || !strings.Contains(answer, sumOf(long)) {
			t.Errorf("%d %.300s", status, answer)
		}
		n.WantClean()
	})
}

func TestMoreThanAPersonCanBeAskedAbout(t *testing.T) {
	t.Parallel()
	o := longOne()
	o.Attach("request", make([]byte, gate.MaxKept+1))
	if _, err := gate.Prepare(o); !fault.Is(err, fault.TooLarge) || !strings.Contains(err.Error(), "33554433 bytes") {
		t.Error(err)
	}
}

func TestAnApprovalSaysWhatWasNotShown(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, t.TempDir())
		ada := n.operator("ada", "operator")
		open := func() (string, gate.Gate) {
			o := longOne()
			o.Attach("call", bytes.Repeat([]byte("x"), gate.MaxWhole+1))
			id := n.openAs("default", o)
			return id, n.shown(ada, id)
		}
		id, g := open()
		short := n.shown(ada, n.open(gate.Rules{}))
		for _, c := range []struct {
			name, body string
			gate       string
			status     int
			says       string
		}{
			{"the digest alone", vote(g.Digest), id, 409, `"error":"not_all_shown"`},
			{"which says what", vote(g.Digest), id, 409, "artifact 1 (call), SHA-256 " + g.Unshown[0].SHA256},
			{"the beginning of the digest", vote(g.Digest[:16]), id, 409, `"error":"not_all_shown"`},
			{"a byte less", fmt.Sprintf(`{"digest":%q,"unseen":%d}`, g.Digest, g.Unseen()-1), id, 409, "not_all_shown"},
			{"not a number", fmt.Sprintf(`{"digest":%q,"unseen":true}`, g.Digest), id, 400, "unseen"},
			{
				"another gate's", fmt.Sprintf(`{"digest":%q,"unseen":%d}`, short.Digest, g.Unseen()), short.ID, 409,
				"shows all that is decided",
			},
			{
				"all of them", fmt.Sprintf(`{"digest":%q,"unseen":%d}`, g.Digest, g.Unseen()), id, 200,
				`"status":"approved"`,
			},
		} {
			status, answer := n.call(ada, "POST /ops/gates/"+c.gate+"/approve", c.body)
			if status != c.status || !strings.Contains(answer, c.says) {
				t.Errorf("%s: %d %.500s", c.name, status, answer)
			}
		}
		votes, err := n.Ledger.Entries(t.Context(), ledger.Query{Kinds: []string{"gate.voted"}})
		if err != nil || len(votes) != 1 || !strings.Contains(string(votes[0].Body), fmt.Sprintf(`"unseen":%d`, g.Unseen())) {
			t.Errorf("the ledger has %d votes, %v", len(votes), err)
		}
		rejected, g := open()
		if status, answer := n.call(ada, "POST /ops/gates/"+rejected+"/reject",
			fmt.Sprintf(`{"digest":%q,"note":"no"}`, g.Digest)); status != 200 {
			t.Errorf("a rejection: %d %.200s", status, answer)
		}
		program, _ := open()
		if status, answer := n.call(ada, "POST /ops/gates/"+program+"/approve", ""); status != 200 {
			t.Errorf("a program: %d %.200s", status, answer)
		}
	})
}

func TestManyArtifactsAreCutTogether(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, t.TempDir())
		o := longOne()
		for range 6 {
			o.Attach("call", bytes.Repeat([]byte("é"), gate.MaxWhole/2-10))
		}
		o.Shown.Summary = strings.Repeat("é", gate.MaxWhole)
		g := n.get(n.openAs("default", o))
		if len(g.Artifacts) != 7 || len(g.Unshown) == 0 || g.Unshown[0].Artifact == 1 || len(g.Summary) > 70<<10 {
			t.Fatalf("%d artifacts, a summary of %d bytes, %v", len(g.Artifacts), len(g.Summary), g.Unshown)
		}
		last := g.Unshown[len(g.Unshown)-1]
		if last.Artifact != 7 || last.Name != "what was done" || last.Bytes != gate.MaxWhole*2 {
			t.Errorf("%+v", last)
		}
		all := 0
		for i, raw := range g.Artifacts {
			all += len(raw)
			if text := gate.ReadArtifact(raw).Text; strings.Trim(text, "é") != "" || text == "" {
				t.Errorf("artifact %d is cut inside of a character: %q", i+1, text[len(text)-4:])
			}
		}
		if all > 9<<20 {
			t.Errorf("the gate shows %d bytes", all)
		}
	})
}

// Half of a credential would not be found, and stay in the ledger for ever.
func TestNothingIsCutInsideOfACredential(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, t.TempDir())
		secret := "ghp_" + secrettest.Alnum(36)
		o := longOne()
		o.Attach("call", []byte(strings.Repeat("a ", 32<<10-10)+secret+strings.Repeat(" b", gate.MaxWhole/2)))
		o.Shown.ProposedAction = strings.Repeat("a ", 32<<10-10) + secret + strings.Repeat(" b", 1000)
		o.Shown.ProposedAction = gate.Excerpt(o.Shown.ProposedAction)
		g := n.get(n.openAs("default", o))
		for _, text := range []string{gate.ReadArtifact(g.Artifacts[0]).Text, g.ProposedAction} {
			if strings.Contains(text, "ghp") || len(text) < 60<<10 {
				t.Errorf("…%s", text[len(text)-60:])
			}
		}
		if u := g.Unshown[0]; u.Shown != 64<<10-20 {
			t.Errorf("%+v", u)
		}
	})
}

func TestArtifactsAreReadWithoutLosingAnything(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]gate.Artifact{
		`"plain"`:                                 {Type: "text", Text: "plain"},
		`{"type":"Patch","content":"-a\n+b"}`:     {Type: "diff", Text: "-a\n+b"},
		`{"type":"md","title":"T","content":"x"}`: {Type: "markdown", Title: "T", Text: "x"},
		`{"type":"url","url":"https://x"}`:        {Type: "link", Text: "https://x"},
		`{"type":"json","name":"n","content":{"a":1}}`: {
			Type: "json", Title: "n", Text: `{"a":1}`,
		},
		// What stands beside the content is shown too: it is a part of what is approved.
		`{"type":"text","content":"ls","tool":"bash","arguments":{"command":"rm -rf /"}}`: {
			Type: "text", Text: "ls", Rest: wire.Raw(`{"arguments":{"command":"rm -rf /"},"tool":"bash"}`),
		},
		`{"type":"text","title":"a","name":"b","content":"c","url":"d"}`: {
			Type: "text", Title: "a", Text: "c", Rest: wire.Raw(`{"name":"b","url":"d"}`),
		},
		`{"type":"video","content":"x"}`:       {Type: "json", Text: `{"type":"video","content":"x"}`},
		`{"type":"text","content":""}`:         {Type: "json", Text: `{"type":"text","content":""}`},
		`{"type":"text","content":["x"]}`:      {Type: "json", Text: `{"type":"text","content":["x"]}`},
		`{"type":"text","content":"a\u0000b"}`: {Type: "json", Text: `{"type":"text","content":"a\u0000b"}`},
		`[1]`:                                  {Type: "json", Text: "[1]"},
	} {
		if got := gate.ReadArtifact(wire.Raw(raw)); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s is read as %+v", raw, got)
		}
	}
}
