// Package openapi describes the calls of the server for other programs, as an OpenAPI document. It knows routes, and
// nothing of what they do.
package openapi

import (
	"fmt"
	"maps"
	"net/http"
	"path"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"signalbox/internal/wire"
)

// Describe describes the routes of a version of the server as an OpenAPI 3.1 document. Schemas are made by reflection from
// the types that the handlers read and write, so the description cannot differ from what the server does. It is made once,
// at the start.
func Describe(version string, routes []wire.Route) []byte {
	b := describer{schemas: object{}, types: map[string]reflect.Type{}}
	paths := object{}
	for _, route := range routes {
		// OpenAPI has no form for a parameter that takes the rest of a path.
		address := strings.ReplaceAll(route.Path, "...}", "}")
		if paths[address] == nil {
			paths[address] = object{}
		}
		paths[address].(object)[strings.ToLower(route.Method)] = b.operation(route)
	}
	document, err := wire.Marshal(object{
		"openapi": "3.1.0",
		"info": object{
			"title": "Signalbox", "version": version, "license": object{"name": "Apache-2.0", "identifier": "Apache-2.0"},
			"description": "A self-hosted control plane for AI agents. Errors have one form; their " +
				"codes are listed in docs/errors.md.",
		},
		"servers": []object{{"url": "/"}},
		"paths":   paths,
		"components": object{
			"schemas": b.schemas,
			"securitySchemes": object{
				"operator": object{"type": "http", "scheme": "bearer", "description": "An operator's token, sbx_op_…"},
				"agent": object{
					"type": "http", "scheme": "bearer",
					"description": "Any key of an agent, rs-amp-… or amp_live_sk_…",
				},
			},
		},
	})
	if err != nil {
		panic(err) // a route with a type that cannot be described; found by any start
	}
	return document
}

// object is a JSON object that is being built. Keys are sorted when it is encoded, so
// the document is the same for the same routes.
type object = map[string]any

// describer collects the schemas of one document. It is not safe for concurrent use.
type describer struct {
	schemas object
	types   map[string]reflect.Type // what each schema describes
}

// pathParam matches {name} and {name...} in a path of net/http. OpenAPI only knows the first form.
var pathParam = regexp.MustCompile(`\{(\w+)(\.\.\.)?\}`)

// operation describes one route: who may call it, its parameters, body and answers.
func (b *describer) operation(route wire.Route) object {
	op := object{
		"summary": route.Summary, "operationId": operationID(route), "responses": b.responses(route),
		// An empty list means that the call is public; without it a default would apply.
		"security": []object{},
	}
	switch route.Auth {
	case wire.Public:
	case wire.Agent:
		op["security"] = []object{{"agent": []string{}}}
		if route.Rate > 0 {
			op["description"] = fmt.Sprintf("An agent may make %d such calls a minute, unless limits.per_agent or "+
				"its own rate_limit says otherwise.", route.Rate)
		}
	case wire.Party:
		op["security"] = []object{{"agent": []string{}}, {"operator": []string{}}}
	default:
		op["security"] = []object{{"operator": []string{}}}
		op["description"] = "Takes the role " + string(route.Auth) + "."
	}
	var params []object
	for _, m := range pathParam.FindAllStringSubmatch(route.Path, -1) {
		params = append(params, object{"name": m[1], "in": "path", "required": true, "schema": object{"type": "string"}})
	}
	for _, q := range route.Query {
		kind := "string"
		if q.Number {
			kind = "integer"
		}
		params = append(params,
			object{"name": q.Name, "in": "query", "description": q.Meaning, "schema": object{"type": kind}})
	}
	if params != nil {
		op["parameters"] = params
	}
	if route.Request != nil {
		op["requestBody"] = object{"required": true, "content": object{"application/json": b.body(route.Request)}}
	}
	if route.RequestMedia != "" {
		op["requestBody"] = object{
			"required": true,
			"content":  object{route.RequestMedia: object{"schema": object{"type": "string"}}},
		}
	}
	return op
}

// body describes what a call takes. The example is put together from the examples of the
// fields, so that it cannot lack a field that was added.
func (b *describer) body(request any) object {
	forms, several := request.(wire.OneOf)
	if !several {
		t := reflect.TypeOf(request)
		media := object{"schema": b.schema(t)}
		if example := exampleOf(t); example != nil {
			media["example"] = example
		}
		return media
	}
	var schemas []object
	examples := object{}
	for _, form := range forms {
		t := reflect.TypeOf(form)
		schemas = append(schemas, b.schema(t))
		if example := exampleOf(t); example != nil {
			examples[t.Name()] = object{"value": example}
		}
	}
	return object{"schema": object{"oneOf": schemas}, "examples": examples}
}

// exampleOf puts the examples of a type's fields together, or returns nil if it has none. The tag `example` holds
// JSON, or for a field of text the text itself. A type with a method Example brings its own.
func exampleOf(t reflect.Type) any {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if e, ok := reflect.Zero(t).Interface().(interface{ Example() wire.Raw }); ok {
		return e.Example()
	}
	if t.Kind() != reflect.Struct || t == reflect.TypeFor[time.Time]() {
		return nil
	}
	out := object{}
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		text, has := f.Tag.Lookup("example")
		switch {
		case f.Anonymous && name == "":
			if inner, ok := exampleOf(f.Type).(object); ok {
				maps.Copy(out, inner)
			}
		case name == "-":
		case has && f.Type.Kind() == reflect.String:
			out[name] = text
		case has:
			out[name] = wire.Raw(text)
		default:
			if inner := exampleOf(f.Type); inner != nil {
				out[name] = inner
			}
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// responses describes the answers: the good status, a second good one if the route has
// it, and the common error form for all others.
func (b *describer) responses(route wire.Route) object {
	status := route.Status
	if status == 0 {
		status = http.StatusOK
	}
	ok := object{"description": http.StatusText(status)}
	switch {
	case route.Answer != nil:
		ok["content"] = object{"application/json": object{"schema": b.schema(reflect.TypeOf(route.Answer))}}
	case route.Media != "":
		ok["content"] = object{route.Media: object{"schema": object{"type": "string"}}}
	}
	failed := object{
		"description": "An error",
		"content":     object{"application/json": object{"schema": b.schema(reflect.TypeFor[wire.ErrorBody]())}},
	}
	out := object{strconv.Itoa(status): ok, "default": failed}
	if route.Also != 0 {
		also := maps.Clone(ok)
		also["description"] = http.StatusText(route.Also)
		out[strconv.Itoa(route.Also)] = also
	}
	return out
}

// operationID is the name of a call for generators of clients. Do not change how it is
// made: it is the name of a method in code of others.
func operationID(route wire.Route) string {
	words := strings.FieldsFunc(route.Path, func(r rune) bool { return strings.ContainsRune("/{}.-", r) })
	return strings.ToLower(route.Method) + "_" + strings.Join(words, "_")
}

// schema describes a type. Named structs become components, so that generators make one type of each. A kind that
// cannot occur in JSON gives an empty schema, which allows everything.
func (b *describer) schema(t reflect.Type) object {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return object{"type": "string", "format": "date-time"}
	case t == reflect.TypeFor[wire.Raw]():
		return object{}
	case t == reflect.TypeFor[[]byte]():
		return object{"type": "string", "contentEncoding": "base64"}
	}
	switch t.Kind() {
	// A pointer is a value that may be null.
	case reflect.Pointer:
		inner := b.schema(t.Elem())
		if ref, ok := inner["$ref"]; ok {
			return object{"oneOf": []object{{"$ref": ref}, {"type": "null"}}}
		}
		if kind, ok := inner["type"].(string); ok {
			inner["type"] = []string{kind, "null"}
		}
		return inner
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.String:
		return object{"type": "string"}
	case reflect.Int, reflect.Int64, reflect.Uint64:
		return object{"type": "integer"}
	case reflect.Float64:
		return object{"type": "number"}
	case reflect.Slice:
		return object{"type": "array", "items": b.schema(t.Elem())}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": b.schema(t.Elem())}
	case reflect.Struct:
		if t.Name() == "" {
			return b.structSchema(t) // it has no name under which others could refer to it
		}
		name := b.name(t)
		if b.schemas[name] == nil {
			b.schemas[name] = object{} // stops a type that contains itself
			b.schemas[name] = b.structSchema(t)
		}
		return object{"$ref": "#/components/schemas/" + name}
	}
	return object{}
}

// name is the name of a component: that of the type, with the package in front where two have the same. The order of
// the routes decides which one stays short, so it must be stable.
func (b *describer) name(t reflect.Type) string {
	name := t.Name()
	if other, taken := b.types[name]; taken && other != t {
		name = path.Base(t.PkgPath()) + "." + name
	}
	b.types[name] = t
	return name
}

// structSchema describes the fields that have a JSON name. A field is required unless it is omitted when empty.
// Members of an embedded struct are members of the object, as encoding does it.
func (b *describer) structSchema(t reflect.Type) object {
	properties, required := object{}, []string{}
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" && f.Type.Kind() == reflect.Struct { // its members stand in the object itself
			inner := b.structSchema(f.Type)
			maps.Copy(properties, inner["properties"].(object))
			required = append(required, inner["required"].([]string)...)
		}
		if name == "" || name == "-" {
			continue
		}
		properties[name] = described(b.schema(f.Type), f.Tag)
		if !strings.Contains(options, "omitempty") && !strings.Contains(options, "omitzero") {
			required = append(required, name)
		}
	}
	return object{"type": "object", "properties": properties, "required": required}
}

// described adds the tag `doc` of a field to its schema. A reference stays as it is:
// many readers of OpenAPI ignore everything beside $ref.
func described(schema object, tag reflect.StructTag) object {
	if _, ref := schema["$ref"]; ref {
		return schema
	}
	if text := tag.Get("doc"); text != "" {
		schema["description"] = text
	}
	return schema
}
