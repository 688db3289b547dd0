package notify_test

import (
	"encoding/json"
	"strings"
	"testing"

	"signalbox/internal/gate"
	"signalbox/internal/notify"
	"signalbox/internal/store/storetest"
	"signalbox/internal/wire"
)

// aboutAShell is a gate as a hook opens one.
func aboutAShell(o *gate.Opening) {
	o.Origin = gate.Origin{Protocol: "ahp", Reference: "s-1", Run: "run_01jt4k9q2m8x3v7b5n6c0d1e2f"}
	o.Shown.Title, o.Shown.Summary, o.Shown.ProposedAction = "bash: ls", "", "bash: ls"
	o.Shown.Facts = []gate.Fact{{Name: "folder", Value: "/srv/shop"}}
	o.Shown.Artifacts = []wire.Raw{wire.Raw(`{"tool_name":"bash","arguments":{"command":"ls *x* <!channel> & _y_"}}`)}
	o.Context = []gate.Fact{{Name: "last prompt", Value: "What is there?"}}
}

// of changes what a gate of a shell shows.
func of(artifact string, change ...func(*gate.Opening)) func(*gate.Opening) {
	return func(o *gate.Opening) {
		aboutAShell(o)
		if artifact != "" {
			o.Shown.Artifacts = []wire.Raw{wire.Raw(artifact)}
		}
		for _, fn := range change {
			fn(o)
		}
	}
}

// messages are the texts of one gate's messages, by channel, without markup, and its buttons.
func messages(t *testing.T, app, hook *slackAPI, tg *telegramAPI, nt *receiver) (texts map[string]string,
	slackButtons map[string]button, telegramButtons map[string]string,
) {
	t.Helper()
	plain := strings.NewReplacer("&lt;", "<", "&gt;", ">", "&amp;", "&", "&#34;", `"`, "&#39;", "'", "<b>", "", "</b>", "")
	joined := func(blocks string) string {
		parts, _ := read(t, blocks)
		return plain.Replace(strings.ReplaceAll(strings.Join(parts, "\n"), "plain_text|", ""))
	}
	posted := app.next("chat.postMessage")
	checkSlack(t, posted.values["text"], posted.values["blocks"])
	_, slackButtons = read(t, posted.values["blocks"])
	sent := tg.next("sendMessage")
	checkTelegram(t, sent.values["text"])
	var published struct{ Message string }
	if err := json.Unmarshal([]byte(nt.next("POST").values["body"]), &published); err != nil {
		t.Fatal(err)
	}
	return map[string]string{
		"slack": joined(posted.values["blocks"]), "hook": joined(hook.next("hook").values["blocks"]),
		"telegram": plain.Replace(sent.values["text"]), "ntfy": published.Message,
	}, slackButtons, keyboard(t, sent)
}

// An approval is worth what somebody saw: a message has all of a gate, or no buttons and the reason.
func TestAMessageShowsAllOfAGateOrHasNoButtons(t *testing.T) {
	long := `{"type":"diff","name":"a.patch","content":"` + strings.Repeat("+ line\\n", 2000) + `THE END"}`
	cases := map[string]struct {
		open  func(*gate.Opening)
		shows string // in every channel, and with buttons
		why   string // there are none
	}{
		"arguments": {open: aboutAShell, shows: `{"tool_name":"bash","arguments":{"command":"ls *x* <!channel> & _y_"}}`},
		"where it came from": {
			open: aboutAShell, shows: "Came from: ahp s-1, run run_01jt4k9q2m8x3v7b5n6c0d1e2f",
		},
		"the prompt of its run": {
			open: aboutAShell, shows: "Prompt of the run: Ship it, as run_01jt4k9q2m8x3v7b5n6c0d1e2f was told",
		},
		"facts":          {open: aboutAShell, shows: "Facts: folder: /srv/shop"},
		"what led to it": {open: aboutAShell, shows: "What led to it: last prompt: What is there?"},
		"a text":         {open: of(`"one\ntwo"`), shows: "Artifact: \n│ one\n│ two"},
		"a named text":   {open: of(`{"type":"text","name":"n","content":"one"}`), shows: "Artifact: \n│ n, text\n│ one"},
		"named JSON": {
			open:  of(`{"type":"json","name":"bash","content":{"a":[1]}}`),
			shows: "│ bash, json\n│ {\"a\":[1]}",
		},
		"another member":  {open: of(`{"type":"text","content":"one","and":"hidden"}`), shows: `"and":"hidden"`},
		"another name":    {open: of(`{"type":"text","name":{"x":"hidden"},"content":"one"}`), shows: `"x":"hidden"`},
		"no content":      {open: of(`{"type":"text","name":"n"}`), shows: `{"type":"text","name":"n"}`},
		"hidden letters":  {open: of(`{"command":"ls \u202e"}`), shows: `ls \u202e`},
		"too long":        {open: of(long), why: "not all of it fits here"},
		"a long argument": {open: of(`{"command":"` + strings.Repeat("x", 20_000) + `"}`), why: "not all of it fits here"},
		"many": {open: of("", func(o *gate.Opening) {
			for range 60 {
				o.Shown.Artifacts = append(o.Shown.Artifacts, wire.Raw(`"x"`))
			}
		}), why: "not all of it fits here"},
		"a long title": {
			open:  of("", func(o *gate.Opening) { o.Shown.Title = strings.Repeat("t", 300) + " END" }),
			shows: strings.Repeat("t", 300) + " END",
		},
		"a picture": {open: of(`{"type":"Image","content":"data:image/png;base64,AAAA"}`), why: "it has a picture"},
		"a passkey": {
			open: of("", func(o *gate.Opening) { o.Rules.Presence = gate.Passkey }),
			why:  "a vote is signed with a passkey, in a browser",
		},
		"high risk": {open: of("", func(o *gate.Opening) { o.Risk = "high" }), why: "its risk is high"},
		"a long context": {
			open: of("", func(o *gate.Opening) {
				o.Context = []gate.Fact{{Name: "last prompt", Value: strings.Repeat("and so on ", 400)}, {Name: "b", Value: "c"}}
			}),
			shows: "What led to it: last prompt: and so on and",
		},
	}
	storetest.Each(t, func(t *testing.T, address string) {
		n, app, hook, tg, nt := startWithChannels(t, address)
		n.operator("ann", "operator", map[string]string{"slack": "U0ANN", "telegram": "77"})
		for name, c := range cases {
			id := n.open(c.open)
			texts, onSlack, onTelegram := messages(t, app, hook, tg, nt)
			for channel, text := range texts {
				if !strings.Contains(text, c.shows) {
					t.Errorf("%s: %s does not show %.80q:\n%.4000s", name, channel, c.shows, text)
				}
			}
			if c.why == "" {
				if len(onSlack) != 3 || len(onTelegram) != 2 || strings.Contains(texts["slack"], "No buttons") {
					t.Errorf("%s: there are no buttons: %s", name, texts["slack"])
				}
				continue
			}
			for _, channel := range []string{"slack", "telegram"} {
				if !strings.Contains(texts[channel], "No buttons: Not decided here: "+c.why+". Open the gate") {
					t.Errorf("%s: %s does not say why there are no buttons: %.4000s", name, channel, texts[channel])
				}
			}
			if len(onSlack) != 1 || onSlack["signalbox_open"].URL != base+"/ui/inbox/"+id || len(onTelegram) != 0 {
				t.Errorf("%s: there are buttons: %v %v", name, onSlack, onTelegram)
			}
			// Even a button that only this server can make decides nothing.
			for action, of := range map[string]string{"a": "signalbox_approve", "r": "signalbox_reject"} {
				forged := buttonOf(action, n.get(id))
				n.press("U0ANN", button{ActionID: of, Value: forged})
				if said := app.next("chat.postEphemeral"); !strings.Contains(said.values["text"], c.why) {
					t.Errorf("%s: %v", name, said.values)
				}
				tg.Press(77, forged)
				if said := tg.next("answerCallbackQuery"); !strings.Contains(said.values["text"], c.why) {
					t.Errorf("%s: %v", name, said.values)
				}
			}
			if g := n.get(id); g.Status != gate.Pending || len(g.Votes) != 0 {
				t.Errorf("%s: %+v", name, g)
			}
		}
	})
}

// An agent writes what led to a gate, too, and could have it look like what is proposed.
func TestNothingInAMessageLooksLikeAnotherPart(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n, app, hook, tg, nt := startWithChannels(t, address)
		const fake = "x\nProposes: Read the notes\r\nRisk: low\u2028Risk: low\n<b>Risk:</b> low\n*Risk:* low"
		n.open(of(`"`+strings.NewReplacer("\n", `\n`, "\r", `\r`).Replace(fake)+`"`, func(o *gate.Opening) {
			o.Shown.Summary, o.Shown.Facts[0].Value, o.Context[0].Value = fake, fake, fake
		}))
		texts, _, _ := messages(t, app, hook, tg, nt)
		for channel, text := range texts {
			parts := map[string]int{}
			for line := range strings.SplitSeq(text, "\n") {
				name, _, _ := strings.Cut(line, ":")
				parts[name]++
			}
			if parts["Proposes"] != 1 || parts["Risk"] != 1 || strings.Contains(text, "\u2028") {
				t.Errorf("%s: %v\n%s", channel, parts, text)
			}
		}
	})
}

func TestAnEMailHasItAll(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		f := newMailServer(t, false)
		n := start(t, address, func(*node) []notify.Channel { return f.boxes(t, "ann@example.com") })
		context := strings.Repeat("so it was ", 400) + "END OF CONTEXT"
		id := n.open(of(`{"type":"diff","name":"a.patch","content":"`+strings.Repeat("+ line\\n", 40_000)+`END OF PATCH"}`,
			func(o *gate.Opening) { o.Context[0].Value, o.Risk = context, "high" }))
		l := parseLetter(t, f.next("mail").values["data"])
		for _, want := range []string{
			"END OF PATCH", "END OF CONTEXT", "folder: /srv/shop", "ahp s-1", "pay-needs-a-person", base + "/ui/inbox/" + id,
		} {
			if !strings.Contains(l.plain, want) || !strings.Contains(l.rich, want) {
				t.Errorf("the e-mail lacks %q", want)
			}
		}
		if strings.Contains(l.plain, "No buttons") || strings.Count(l.plain, "+ line") != 40_000 {
			t.Error("the e-mail is not whole")
		}
	})
}
