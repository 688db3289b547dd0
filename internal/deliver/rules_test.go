package deliver

import (
	"net/http"
	"testing"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/wire"
)

// The vector was made apart from this code.
func TestTheSignatureOfAMPMessaging(t *testing.T) {
	header := http.Header{}
	body := []byte(`{"envelope":{"id":"msg_1706648400_abc123"},"payload":{"type":"request","message":"hi"}}`)
	sign(header, wire.NewSecret("whsec_test"), "msg_1", time.Unix(1706648400, 0), body)
	const want = "sha256=651b889cfe9bb31f579ddc0c1a1c884d2aa62b4cac09f148c0c4706a0a860c75"
	if header.Get("X-AMP-Signature") != want || header.Get("X-AMP-Timestamp") != "1706648400" {
		t.Errorf("the headers are %v", header)
	}
}

// The example of the Standard Webhooks libraries.
func TestTheSignatureOfStandardWebhooks(t *testing.T) {
	header := http.Header{}
	sign(header, wire.NewSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"), "msg_p5jXN8AQM9LWM0D4loKWxJek",
		time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`))
	const want = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
	if header.Get("webhook-signature") != want {
		t.Errorf("the signature is %s", header.Get("webhook-signature"))
	}
}

func TestPausesGrowAndVaryAndTheLastTryComesWhenTheTimeIsOver(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	giveUp := now.Add(DefaultGiveUpAfter).UnixMicro()
	at, tries := now, int64(0)
	for {
		tries++
		pause := pauseAfter(DefaultPauses, tries, 0)
		if step := DefaultPauses[min(int(tries), len(DefaultPauses))-1]; pause < step*8/10 || pause > step*12/10 {
			t.Errorf("after try %d the pause is %v, not about %v", tries, pause, step)
		}
		kind, next := verdictOn(Result{}, at, pause, giveUp)
		if kind == kindGivenUp {
			break
		}
		if next <= at.UnixMicro() || next > giveUp {
			t.Fatalf("after try %d the next is %v later", tries, time.UnixMicro(next).Sub(at))
		}
		at = time.UnixMicro(next)
	}
	if at.UnixMicro() != giveUp || tries < 25 || tries > 40 {
		t.Errorf("given up after %d tries and %v", tries, at.Sub(now))
	}
	if a, b := pauseAfter(DefaultPauses, 5, 0), pauseAfter(DefaultPauses, 5, 0); a == b {
		t.Error("two pauses are equal to the nanosecond")
	}
}

func TestADeliveryIsCheckedBeforeItIsQueued(t *testing.T) {
	good := Delivery{Workspace: "default", Target: "https://Hooks.example.com:8443/a/b?x=1"}
	b, err := good.body()
	if err != nil || b.Method != http.MethodPost || b.Sender != WebhookSender ||
		b.OrderKey != "default webhook hooks.example.com:8443/a/b" || b.GiveUpAfter != DefaultGiveUpAfter.Microseconds() {
		t.Errorf("%+v %v", b, err)
	}
	for name, d := range map[string]Delivery{
		"no target":           {},
		"a target of no web":  {Target: "mailto:a@example.com"},
		"a secret header":     {Target: good.Target, Header: map[string]string{"authorization": "Bearer x"}},
		"a header of ours":    {Target: good.Target, Header: map[string]string{"Webhook-ID": "x"}},
		"a header with lines": {Target: good.Target, Header: map[string]string{"X-A": "a\r\nX-B: b"}},
		"a header's name":     {Target: good.Target, Header: map[string]string{"X A": "a"}},
		"another sender":      {Sender: "slack"},
	} {
		if _, err := d.body(); !fault.Is(err, fault.InvalidPayload) && !fault.Is(err, fault.InvalidTarget) {
			t.Errorf("%s: %v", name, err)
		}
	}
	slack := Delivery{Workspace: "w", Sender: "slack", Target: "C123"}
	if b, err := slack.body(); err != nil || b.OrderKey != "w slack C123" {
		t.Errorf("%+v %v", b, err)
	}
	long := Delivery{Workspace: "w", Target: good.Target, OrderKey: string(make([]byte, 300))}
	if b, err := long.body(); err != nil || len(b.OrderKey) > maxOrderKey {
		t.Errorf("%+v %v", b, err)
	}
}

func TestTextsAreCleanBeforeTheyAreKept(t *testing.T) {
	for in, want := range map[string]string{"a\x00b\n c": "ab  c", "\xff": "?", "\x1b[31mred": "[31mred", " x ": "x"} {
		if got := tidy(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}
