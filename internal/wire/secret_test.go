package wire_test

import (
	"bytes"
	stdjson "encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"signalbox/internal/wire"
)

const secretText = "hunter2"

// config holds secrets in all the ways that a struct can.
type config struct {
	Key     wire.Secret            `json:"key"`
	Pointer *wire.Secret           `json:"pointer"`
	List    []wire.Secret          `json:"list"`
	ByName  map[string]wire.Secret `json:"by_name"`
	Any     any                    `json:"any"`
	hidden  wire.Secret
	below   struct{ hidden *wire.Secret }
	wire.Secret
}

func secrets() map[string]any {
	s := wire.NewSecret(secretText)
	c := config{
		Key: s, Pointer: &s, List: []wire.Secret{s}, ByName: map[string]wire.Secret{"a": s}, Any: s, hidden: s,
		Secret: s,
	}
	c.below.hidden = &s
	type bare struct{ hidden wire.Secret } // has no methods to help it
	return map[string]any{
		"alone": s, "pointer": &s, "list": []any{s, &s}, "struct": c, "pointer to struct": &c,
		"unexported": bare{s}, "pointer to unexported": &bare{s}, "map": map[string]any{"a": s},
		"key": map[wire.Secret]int{s: 1},
	}
}

func TestASecretIsNeverPrinted(t *testing.T) {
	for name, v := range secrets() {
		t.Run(name, func(t *testing.T) {
			for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%10.3s"} {
				refuse(t, verb, fmt.Sprintf(verb, v))
			}
			refuse(t, "an error", fmt.Errorf("open %v: %w", v, fmt.Errorf("%+v", v)).Error())
			for kind, encode := range map[string]func(any) ([]byte, error){
				"the standard library's JSON": stdjson.Marshal,
				"strict JSON":                 func(v any) ([]byte, error) { return json.Marshal(v) },
				"wire's JSON":                 wire.Marshal,
			} {
				text, _ := encode(v) // an error is as good as a redacted text
				refuse(t, kind, string(text))
			}
			var log bytes.Buffer
			slog.New(slog.NewTextHandler(&log, nil)).Info("m", "v", v, slog.Group("g", "v", v))
			slog.New(slog.NewJSONHandler(&log, nil)).Info("m", "v", v, slog.Group("g", "v", v))
			slog.New(slog.NewTextHandler(&log, nil)).With("v", v).Info("m")
			refuse(t, "the log", log.String())
		})
	}
}

func refuse(t *testing.T, how, printed string) {
	t.Helper()
	if strings.Contains(printed, secretText) || strings.Contains(strings.ToLower(printed), fmt.Sprintf("%x", secretText)) {
		t.Errorf("%s shows the secret: %s", how, printed)
	}
}

func TestASecretSaysThatItIsOne(t *testing.T) {
	s := wire.NewSecret(secretText)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d"} {
		if got := fmt.Sprintf(verb, s); got != "[redacted]" {
			t.Errorf("%s prints %q", verb, got)
		}
	}
	text, err := wire.Marshal(struct {
		Key, Empty wire.Secret
	}{Key: s})
	if err != nil || string(text) != `{"Key":"[redacted]","Empty":""}` {
		t.Errorf("got %s, %v", text, err)
	}
}

func TestASecretIsRevealedAndCompared(t *testing.T) {
	s := wire.NewSecret(secretText)
	if s.Reveal() != secretText || s != wire.NewSecret(secretText) || s == wire.NewSecret("other") {
		t.Error("the text is lost")
	}
	var empty wire.Secret
	if empty.Reveal() != "" || empty.String() != "" || empty != wire.NewSecret("") {
		t.Error("the zero value is not the empty text")
	}
}
