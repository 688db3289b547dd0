package mailbox

import (
	"bytes"
	"crypto/ed25519"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"signalbox/internal/fault"
)

func TestASenderWithAnotherKeyIsNotBelieved(t *testing.T) {
	t.Parallel()
	s := newStranger(t)
	b := bobAt(t, s)
	other := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize))
	n := 0
	trust := func(m sample) Security {
		t.Helper()
		n++
		m.id = fmt.Sprintf("msg_1_%04d", n)
		s.queueUp(m)
		got, err := reopen(t, b).Fetch(t.Context(), Fetching{})
		if err != nil || len(got.New) != 1 {
			t.Fatalf("%+v %v", got, err)
		}
		return got.New[0].Security
	}
	if got := trust(sample{}); got.Trust != Verified {
		t.Errorf("the first: %+v", got)
	}
	if got := trust(sample{by: other}); got.Trust != Untrusted || !strings.Contains(got.Reason, fingerprint(other)) {
		t.Errorf("another key: %+v", got)
	}
	if got := trust(sample{}); got.Trust != Verified {
		t.Errorf("the key as before: %+v", got)
	}
	if got := trust(sample{by: other, from: "carol@mars.other.example"}); got.Trust != External {
		t.Errorf("another sender: %+v", got)
	}
	// What does not verify changes nothing.
	if got := trust(sample{forge: true, from: "eve@acme.other.example"}); got.Trust != Untrusted {
		t.Errorf("forged: %+v", got)
	}
	if _, err := b.Accept("eve@acme.other.example"); !fault.Is(err, fault.NotFound) {
		t.Errorf("nothing to accept: %v", err)
	}
	if took, err := b.Accept("Carol@acme.other.example"); err != nil || took.Before != fingerprint(carol) ||
		took.Now != fingerprint(other) {
		t.Errorf("%+v %v", took, err)
	}
	if got := trust(sample{by: other}); got.Trust != Verified {
		t.Errorf("after it was accepted: %+v", got)
	}
	if got := trust(sample{}); got.Trust != Untrusted {
		t.Errorf("the old key: %+v", got)
	}
	// Its provider says that it has changed its key; of others' agents it cannot.
	s.mu.Lock()
	for _, who := range []string{"carol@acme.other.example", "carol@acme.crabmail.ai"} {
		s.answers["GET /v1/agents/resolve/"+who] = `{"fingerprint":"` + fingerprint(carol) + `"}`
	}
	s.mu.Unlock()
	if got := trust(sample{}); got.Trust != Verified {
		t.Errorf("a key that the provider has: %+v", got)
	}
	abroad := "carol@acme.crabmail.ai"
	if got := trust(sample{by: other, from: abroad}); got.Trust != External {
		t.Errorf("%+v", got)
	}
	if got := trust(sample{from: abroad}); got.Trust != Untrusted {
		t.Errorf("a key that another provider's agent has changed: %+v", got)
	}
}

func TestCommandsThatRunAtOnce(t *testing.T) {
	t.Parallel()
	s := newStranger(t)
	b := bobAt(t, s)
	const many = 40
	for i := range many {
		s.queueUp(sample{id: fmt.Sprintf("msg_1_%04d", i)})
	}
	var mu sync.Mutex
	taken := map[string]int{}
	var commands sync.WaitGroup
	for range 4 {
		box := reopen(t, b)
		commands.Go(func() {
			got, err := box.Fetch(t.Context(), Fetching{})
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			for _, m := range got.New {
				taken[m.Envelope.ID]++
			}
		})
	}
	commands.Wait()
	for id, n := range taken {
		if n != 1 {
			t.Errorf("%s was taken %d times", id, n)
		}
	}
	text, err := os.ReadFile(b.seenFile())
	if lines := strings.Count(string(text), "\n"); err != nil || len(taken) != many || lines != many {
		t.Errorf("%d of %d taken, %d remembered, %v", len(taken), many, lines, err)
	}
	// Keys that are changed by two commands at once end in a folder that is whole.
	s.mu.Lock()
	s.answers["POST /v1/auth/rotate-keys"] = `{"rotated":true}`
	s.mu.Unlock()
	before := b.Fingerprint()
	for range 3 {
		box := reopen(t, b)
		commands.Go(func() {
			if err := box.Rotate(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	commands.Wait()
	again := reopen(t, b)
	if again.Fingerprint() == before || again.next != nil || again.Registrations[0].Fingerprint != again.Fingerprint() {
		t.Errorf("%s %+v", again.Fingerprint(), again.Registrations[0])
	}
	// Two agents that are made at once are both in the index.
	root := Where{Root: t.TempDir()}
	for _, name := range []string{"one", "two", "three"} {
		commands.Go(func() {
			if _, err := Init(root, name, ""); err != nil {
				t.Error(err)
			}
		})
	}
	commands.Wait()
	for _, name := range []string{"one", "two", "three"} {
		if _, err := Open(Where{Root: root.Root, Agent: name}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
