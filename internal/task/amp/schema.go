package amp

import (
	"bytes"
	"cmp"
	"embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"signalbox/internal/wire"
)

//go:embed schemas/*.json
var schemaFiles embed.FS

const schemaBase = "https://amp1.invalid/schema/"

// schemas are the compiled schemas by the name of their file, and the files themselves, in which
// x-amp-error names the code for a keyword that fails. So the codes stand beside the rules that
// they belong to.
type schemas struct {
	byName map[string]*jsonschema.Schema
	source map[string]any // by URL
}

// loadSchemas compiles the embedded schemas, once. It cannot fail in a program whose tests ran.
var loadSchemas = sync.OnceValue(func() *schemas {
	s := &schemas{byName: map[string]*jsonschema.Schema{}, source: map[string]any{}}
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	files, _ := schemaFiles.ReadDir("schemas")
	for _, f := range files {
		text, _ := schemaFiles.ReadFile("schemas/" + f.Name())
		source, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			panic(err)
		}
		s.source[schemaBase+f.Name()] = source
		if err := compiler.AddResource(schemaBase+f.Name(), source); err != nil {
			panic(err)
		}
	}
	for _, f := range files {
		s.byName[strings.TrimSuffix(f.Name(), ".json")] = compiler.MustCompile(schemaBase + f.Name())
	}
	return s
})

// Schema is the source of a schema, such as task_dispatch, for those who build forms and tools
// from it.
func Schema(name string) ([]byte, error) { return schemaFiles.ReadFile("schemas/" + name + ".json") }

// CheckRecord validates a document against a schema by its name, such as task_record.
func CheckRecord(schema string, raw []byte) []Problem {
	data, err := wire.Data(raw)
	if err != nil {
		return []Problem{{Code: BadJSON, Detail: err.Error()}}
	}
	return loadSchemas().check(schema, data)
}

// check validates data that wire.Data has read, and returns everything that is wrong, in a stable
// order and without repetitions.
func (s *schemas) check(name string, data any) []Problem {
	err := s.byName[name].Validate(data)
	if err == nil {
		return nil
	}
	failed, ok := errors.AsType[*jsonschema.ValidationError](err)
	if !ok {
		return []Problem{{Code: SchemaBroken, Detail: err.Error()}}
	}
	var list []Problem
	for _, leaf := range leaves(failed) {
		list = append(list, s.problems(leaf)...)
	}
	slices.SortStableFunc(list, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Pointer, b.Pointer), cmp.Compare(a.Code, b.Code))
	})
	return slices.CompactFunc(list, func(a, b Problem) bool { return a.Pointer == b.Pointer && a.Code == b.Code })
}

// leaves are the errors that name a keyword. Of "this or null" only what is wrong with "this" is
// reported, because "or null" would mislead whoever repairs it.
func leaves(e *jsonschema.ValidationError) (list []*jsonschema.ValidationError) {
	if len(e.Causes) == 0 {
		return []*jsonschema.ValidationError{e}
	}
	causes := e.Causes
	if _, either := e.ErrorKind.(*kind.AnyOf); either {
		causes = causes[:1]
	}
	for _, c := range causes {
		list = append(list, leaves(c)...)
	}
	return list
}

// problems translates a failed keyword into the codes of AMP/1.0: the one that x-amp-error names
// at that place, or the general one for the keyword.
func (s *schemas) problems(e *jsonschema.ValidationError) []Problem {
	at := pointer(e.InstanceLocation)
	one := func(keyword string, code Code, detail, expected string) []Problem {
		return []Problem{withExample(Problem{
			Code: cmp.Or(s.code(e.SchemaURL, keyword), code), Pointer: at, Detail: detail,
			Expected: expected,
		})}
	}
	switch k := e.ErrorKind.(type) {
	case *kind.Required:
		var list []Problem
		for _, name := range k.Missing {
			code := cmp.Or(s.code(e.SchemaURL, "required:"+name), MissingField)
			list = append(list,
				withExample(Problem{
					Code: code, Pointer: at + "/" + escape(name),
					Detail: fmt.Sprintf("The field %q is missing.", name),
				}))
		}
		return list
	case *kind.AdditionalProperties:
		var list []Problem
		for _, name := range k.Properties {
			code := cmp.Or(s.code(e.SchemaURL, "additionalProperties"), UnknownField)
			list = append(list, Problem{
				Code: code, Pointer: at + "/" + escape(name),
				Detail:   fmt.Sprintf("The field %.80q is not one of AMP/1.0.", name),
				Expected: "a field of AMP/1.0; names of your own begin with x_",
			})
		}
		return list
	case *kind.Type:
		return one("type", WrongType, "The value has the type "+k.Got+".",
			"a value of type "+strings.Join(k.Want, " or "))
	case *kind.Enum:
		list := one("enum", NotInEnum, fmt.Sprintf("The value is %s.", short(k.Got)), "one of "+words(k.Want))
		list[0].Example = k.Want[0]
		return list
	case *kind.Const:
		list := one("const", NotInEnum, fmt.Sprintf("The value is %s.", short(k.Got)), "exactly "+short(k.Want))
		list[0].Example = k.Want
		return list
	case *kind.Pattern:
		return one("pattern", WrongFormat, fmt.Sprintf("The value is %s.", short(k.Got)), "text of the form "+k.Want)
	case *kind.Format:
		return one("format", WrongFormat, fmt.Sprintf("The value is %s.", short(k.Got)),
			"a real moment with an offset, as in RFC 3339")
	case *kind.MinLength:
		return one("minLength", Empty, "The text is empty.", "text that says something")
	case *kind.MinItems:
		return one("minItems", Empty, "The list is empty.", "at least "+strconv.Itoa(k.Want)+" item")
	case *kind.MaxItems:
		return one("maxItems", OutOfRange, "The list has "+strconv.Itoa(k.Got)+" items.",
			"at most "+strconv.Itoa(k.Want)+" items")
	case *kind.Minimum:
		return one("minimum", OutOfRange, "The number is too small.", "at least "+k.Want.RatString())
	case *kind.Maximum:
		return one("maximum", OutOfRange, "The number is too large.", "at most "+k.Want.RatString())
	case *kind.ExclusiveMaximum:
		return one("exclusiveMaximum", OutOfRange, "The number is too large.", "less than "+k.Want.RatString())
	case *kind.UniqueItems:
		return one("uniqueItems", DuplicateItem, "Duplicate item in the list.", "every item once")
	case *kind.Not:
		return one("not", SchemaBroken, "The value is not allowed here.", "")
	}
	return one("", SchemaBroken, "The document breaks the schema.", "")
}

// code is what x-amp-error says of a keyword at a place in a schema, "" if nothing. The place is a
// URL with a JSON pointer, as the validator reports it.
func (s *schemas) code(place, keyword string) Code {
	url, fragment, _ := strings.Cut(place, "#")
	node := s.source[url]
	for part := range strings.SplitSeq(strings.TrimPrefix(fragment, "/"), "/") {
		if part == "" {
			continue
		}
		switch in := node.(type) {
		case map[string]any:
			node = in[unescape(part)]
		case []any:
			i, err := strconv.Atoi(part)
			if err != nil || i >= len(in) {
				return ""
			}
			node = in[i]
		}
	}
	object, _ := node.(map[string]any)
	named, _ := object["x-amp-error"].(map[string]any)
	code, _ := named[keyword].(string)
	return Code(code)
}

var (
	toPointer   = strings.NewReplacer("~", "~0", "/", "~1")
	fromPointer = strings.NewReplacer("~1", "/", "~0", "~", "%24", "$", "%25", "%")
)

// escape and unescape are RFC 6901, with the two characters that the validator writes in percent
// form.
func escape(name string) string   { return toPointer.Replace(name) }
func unescape(part string) string { return fromPointer.Replace(part) }

// pointer is the JSON pointer of a path.
func pointer(path []string) string {
	var b strings.Builder
	for _, part := range path {
		b.WriteString("/" + escape(part))
	}
	return b.String()
}

// short is a value as a message repeats it: at most 120 bytes.
func short(v any) string {
	text, err := wire.EncodeData(v)
	if err != nil || len(text) > 120 {
		return fmt.Sprintf("%.100s…", text)
	}
	return string(text)
}

// words lists values for people.
func words(list []any) string {
	var out []string
	for _, v := range list {
		out = append(out, fmt.Sprint(v))
	}
	return strings.Join(out, ", ")
}

// examples are right values by the name of the field. Where a name means different things, the
// parent stands before it.
var examples = map[string]any{
	"msg_id": "task_dispatch-T-2026-044-1772116327000", "protocol_version": Version, "type": "task_dispatch",
	"task_id": "T-2026-044", "timestamp": "2026-02-26T14:32:07+00:00",
	"requires_ack": true, "ack_timeout_sec": 300, "context_ref": []string{"task_dispatch-T-2026-044-1772116327000"},
	"description": "Rework the timer so that it survives suspension", "repo": "/srv/repos/app",
	"branch": "feature/timer-v2",
	"subtasks": []any{map[string]any{
		"subtask_id": "T-2026-044-S1", "description": "Replace the timer",
		"estimated_lines": 60,
	}},
	"subtask_id": "T-2026-044-S1", "estimated_lines": 60, "acceptance_criteria": []string{"All tests pass"},
	"risk_level":        "medium",
	"completion_status": "complete",
	"diff_summary":      map[string]any{"files_changed": []string{"timer.go"}, "lines_added": 68, "lines_removed": 24},
	"lines_added":       68, "lines_removed": 24,
	"self_assessment": map[string]any{
		"criteria_met": []any{true, nil},
		"notes":        []string{"ran them", "cannot be checked here"},
	},
	"criteria_met": []any{true, nil}, "notes": []string{"ran them", "cannot be checked here"}, "commit_hash": "a3f8d21",
	"blockers": []string{"The build server is away"},
	"work_log": []any{map[string]any{
		"timestamp": "2026-02-26T14:28:00Z", "action": "replace_timer",
		"file": "timer.go", "detail": "what was done",
	}},
	"original_dispatch_ref": "task_dispatch-T-2026-044-1772116327000",
	"task_result_ref":       "task_result-T-2026-044-1772116328000",
	"review_scope":          "full", "diff_url": "https://git.example.com/app/compare/main...feature/timer-v2",
	"reject_count": 0,
	"decision":     "rejected", "confidence": 0.95,
	"criteria_results": []any{map[string]any{"criterion": "All tests pass", "passed": true, "evidence": "CI run 812"}},
	"issues": []any{map[string]any{
		"severity": "major", "file": "timer.go", "line": 87,
		"description": "The session is dropped", "suggested_fix": "Keep it in a field",
	}},
	"severity": "warning", "issues/severity": "major", "line": 87,
	"direct_fixes": []any{map[string]any{"file": "timer.go", "change_type": "typo", "diff_lines": 2}},
	"change_type":  "typo", "diff_lines": 2, "escalation_type": "conflict", "triggered_by": "executor",
	"auto_suspended":        true,
	"affected_msgs":         []string{"task_dispatch-T-2026-044-1772116327000"},
	"escalation_refs":       []string{"escalation-T-2026-044-1772116327500"},
	"system_state_snapshot": map[string]any{"task_status": "executing", "reject_count": 0, "last_successful_msg_id": nil},
	"ack_of":                "task_dispatch-T-2026-044-1772116327000", "ack_id": "ack-T-2026-044-1772116330000",
	"status": "accepted", "action": "resume",
	"instruction_id": "admin-T-2026-044-1772116330000", "channel": "api", "actor": "kim", "record": "ack",
	"error": map[string]any{"code": "AMP_E_BRANCH_PROTECTED", "pointer": "/payload/branch"},
}

// withExample adds a right value to a problem where its field has one.
func withExample(p Problem) Problem {
	path := slices.DeleteFunc(strings.Split(p.Pointer, "/"), func(part string) bool {
		_, err := strconv.Atoi(part)
		return part == "" || err == nil
	})
	if len(path) == 0 {
		return p
	}
	name := path[len(path)-1]
	p.Example = examples[name]
	if len(path) > 1 {
		if special, ok := examples[path[len(path)-2]+"/"+name]; ok {
			p.Example = special
		}
	}
	return p
}
