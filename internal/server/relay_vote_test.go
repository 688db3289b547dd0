package server_test

import (
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"testing"
)

// digest is that of a gate as it is shown now, which the forms of pages carry.
func (b *box) digest(gate string) string {
	b.t.Helper()
	var shown struct{ Digest string }
	b.ops(200, "GET /ops/gates/"+gate, "", &shown)
	return shown.Digest
}

// shown is the digest that the form of a page carries.
func (v *visitor) shown(path string) string {
	v.b.t.Helper()
	_, page, _ := v.get(path)
	found := regexp.MustCompile(`name="digest" value="([0-9a-f]{64})"`).FindStringSubmatch(page)
	if found == nil {
		v.b.t.Fatalf("%s has no form with a digest: %s", path, page)
	}
	return found[1]
}

// vote sends the form of a gate's page, as it is now.
func (v *visitor) vote(gate string, form url.Values) (page string) {
	v.b.t.Helper()
	form.Set("digest", v.b.digest(gate))
	_, page, _ = v.post("/ui/inbox/"+gate+"/decide", form)
	return page
}

func TestAVoteIsForWhatItsPageShowed(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		_, key := b.addAgent("writer")
		ann, ben := b.signedIn(b.operator("ann", "operator")), b.signedIn(b.operator("ben", "operator"))
		vera := b.operator("vera", "viewer")
		if status, answer, _ := b.do(request{
			call: "PUT /ops/policy", token: b.token(), media: "application/yaml",
			body: "version: 1\nrules:\n  - {name: two, on: [signal], then: gate, gate: {quorum: 2}}\n",
		}); status != 200 {
			t.Fatalf("%d %s", status, answer)
		}
		first, other := b.ask(key, "writer", "run-1", "Pay 10"), b.ask(key, "writer", "run-2", "Pay 10")
		at := func(gate string) string { return "/ui/inbox/" + gate }
		seen := ann.shown(at(first))
		refused := func(name, says string, gate string, form url.Values) {
			t.Helper()
			before := b.head()
			if _, page, _ := ann.post(at(gate)+"/decide", form); !strings.Contains(page, says) ||
				!strings.Contains(page, `class="flash bad"`) || b.head() != before {
				t.Errorf("%s: %d entries more, %s", name, b.head()-before, page)
			}
		}
		const elsewhere = "You were shown something else"
		refused("a form that shows nothing", elsewhere, first, url.Values{"do": {"approve"}})
		refused("the form of another gate", elsewhere, other, url.Values{"do": {"approve"}, "digest": {seen}})

		// The agent cannot put something else in the place of what is shown.
		status, answer, _ := b.do(request{
			call: "POST /amp/signal", token: key,
			body: strings.Replace(ampSignal("writer", "run-1"), `"summary":"`, `"summary":"Something else. `, 1),
		})
		if status != 409 || ann.shown(at(first)) != seen {
			t.Errorf("the same run with other content: %d %s", status, answer)
		}

		// A colleague can change what is approved, and whoever had the page open before is told.
		if page := ben.vote(first, url.Values{
			"do": {"modify"}, "modified": {`{"amount": 99}`},
		}); !strings.Contains(page, "Your approval is counted") {
			t.Fatal(page)
		}
		refused("a page from before the change", "ben has voted with changes", first,
			url.Values{"do": {"approve"}, "digest": {seen}})
		ann.sees(at(first), "with changes, which the decision carries", "&#34;amount&#34;: 99")

		// In bulk each gate is decided as its own part of the page showed it.
		third := b.ask(key, "writer", "run-3", "Pay 30")
		_, page, _ := ann.post("/ui/inbox/bulk", url.Values{"do": {"approve"}, "gate": {first, third}})
		for _, gate := range []string{first, third} {
			if !strings.Contains(page, fmt.Sprintf(`name="digest-%s" value=%q`, gate, b.digest(gate))) {
				t.Errorf("the question does not carry what it shows of %s: %s", gate, page)
			}
		}
		_, page, _ = ann.post("/ui/inbox/bulk/do", url.Values{
			"do": {"approve"}, "gate": {first, third},
			"digest-" + first: {seen}, "digest-" + third: {b.digest(third)},
		})
		if !strings.Contains(page, "Approved 1 gate. Not done: ") || !strings.Contains(page, "ben has voted with changes") {
			t.Error(page)
		}
		for call, want := range map[string]int{
			"POST /ops/gates/" + first + "/approve": 403,
			"GET /ops/gates/" + first:               200,
		} {
			body := `{"digest":"` + b.digest(first) + `"}`
			if strings.HasPrefix(call, "GET") {
				body = ""
			}
			if status, answer, _ := b.do(request{call: call, token: vera, body: body}); status != want {
				t.Errorf("a viewer at %s: %d %s", call, status, answer)
			}
		}
		if page := ann.vote(first, url.Values{"do": {"approve"}}); !strings.Contains(page, "Approved with changes") {
			t.Error(page)
		}
		if status, answer, _ := b.do(request{
			call: "POST /ops/gates/" + other + "/approve", token: b.token(), body: `{"digest":"` + seen + `"}`,
		}); status != 409 || !strings.Contains(answer, `"error":"not_what_was_shown"`) ||
			!strings.Contains(answer, `"differs":[{"member":"id","now":"`+other+`"}`) {
			t.Errorf("the digest of another gate: %d %s", status, answer)
		}
	})
}
