package form

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"signalbox/internal/wire"
)

// drawn is an object with some of the names, as a text that may be no JSON.
func drawn(t *rapid.T, depth int) string {
	names := strings.Fields(`type id model content usage input name toolset_name text function custom server_label Type ` +
		`t\u0079pe arguments description input_tokens output_tokens cache_creation_input_tokens cache_read_input_tokens service_tier ` +
		`speed cache_creation ephemeral_5m_input_tokens ephemeral_1h_input_tokens iterations`)
	values := strings.Split("\"a\"|\"tool_use\"|\"\\u0061\"|\"\\\"\"|\"\"|null|true|1|-1.5e3|{}|[]|[null]|[1,2]|{\"a\":1,\"a\":2}|"+
		"\"\xff\"|x|\"|[1|{\"a\"|\"é\"| [ ] |{\"command\":\"ls\"}", "|")
	var parts []string
	for range rapid.IntRange(0, 5).Draw(t, "members") {
		value := rapid.SampledFrom(values).Draw(t, "value")
		if depth > 0 && rapid.IntRange(0, 2).Draw(t, "kind") > 0 {
			value = drawn(t, depth-1)
			if rapid.Bool().Draw(t, "list") {
				value = "[" + value + " , " + drawn(t, depth-1) + "]"
			}
		}
		parts = append(parts, `"`+rapid.SampledFrom(names).Draw(t, "name")+`" : `+value)
	}
	return "{" + strings.Join(parts, ",") + "}" + rapid.SampledFrom([]string{"", "", "", " ", "x"}).Draw(t, "after")
}

// What the light readers take, a decoder reads the same in.
func TestLightReadersReadWhatADecoderReads(t *testing.T) {
	taken := 0
	rapid.Check(t, func(t *rapid.T) {
		text := []byte(drawn(t, 3))
		var light, decoded message
		if light.light(text) {
			taken++
			if err := wire.UnmarshalPart(text, &decoded); err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			if diff := cmp.Diff(decoded, light, cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("%s (-decoded +light):\n%s", text, diff)
			}
		}
		var tool, other Tool
		if tool.Light(text) && wire.Strict(text) {
			taken++
			if err := wire.UnmarshalPart(text, &other); err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			if diff := cmp.Diff(other, tool); diff != "" {
				t.Fatalf("%s (-decoded +light):\n%s", text, diff)
			}
		}
		var usage, same messageUsage
		if usage.light(text) {
			taken++
			if err := wire.UnmarshalPart(text, &same); err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			if diff := cmp.Diff(same, usage); diff != "" {
				t.Fatalf("%s (-decoded +light):\n%s", text, diff)
			}
		}
	})
	if taken == 0 {
		t.Error("nothing was taken")
	}
}
