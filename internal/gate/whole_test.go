package gate_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/gate"
	"signalbox/internal/ledger"
	"signalbox/internal/secret/secrettest"
	"signalbox/internal/store/storetest"
	"signalbox/internal/wire"
)

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
