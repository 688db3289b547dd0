package policy

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"

	"signalbox/internal/facts"
)

// The types that rules see. A field that is not listed does not compile, which is
// how a typing mistake is found before it lets something through.
var (
	eventType   = cel.ObjectType("Event")
	commandType = cel.ObjectType("Command")
	agentType   = cel.ObjectType("Agent")
	recentType  = cel.ObjectType("Recent")
	anyMap      = cel.MapType(cel.StringType, cel.DynType)
	texts       = cel.ListType(cel.StringType)
)

// field is one field of event or agent: its type, and how its value is read. The value is a
// CEL value where that saves a conversion, and otherwise a Go value that CEL knows.
type field[T any] struct {
	typ *cel.Type
	get func(*T) any
}

// eventFields are what rules see of an event. A field that reads data calls Complete first,
// so that data is decoded when the first rule looks at it, and never if none does.
var eventFields = map[string]field[Event]{
	"point":           {cel.StringType, func(e *Event) any { return types.String(e.Point) }},
	"protocol":        {cel.StringType, func(e *Event) any { return types.String(e.Protocol) }},
	"kind":            {cel.StringType, func(e *Event) any { return types.String(e.Kind) }},
	"tool":            {cel.StringType, func(e *Event) any { return types.String(e.Tool) }},
	"toolset":         {cel.StringType, func(e *Event) any { return types.String(e.Toolset) }},
	"command":         {cel.StringType, func(e *Event) any { return types.String(e.Command) }},
	"path":            {cel.StringType, func(e *Event) any { return types.String(e.Path) }},
	"cwd":             {cel.StringType, func(e *Event) any { return types.String(e.CWD) }},
	"url":             {cel.StringType, func(e *Event) any { return types.String(e.URL) }},
	"host":            {cel.StringType, func(e *Event) any { return types.String(e.Host) }},
	"text":            {cel.StringType, func(e *Event) any { return types.String(e.Text) }},
	"arguments":       {anyMap, func(e *Event) any { e.Complete(); return e.Arguments }},
	"payload":         {anyMap, func(e *Event) any { e.Complete(); return e.Payload }},
	"metadata":        {anyMap, func(e *Event) any { e.Complete(); return e.Metadata }},
	"artifacts":       {cel.ListType(cel.DynType), func(e *Event) any { e.Complete(); return e.Artifacts }},
	"tools":           {cel.ListType(cel.StringType), func(e *Event) any { return e.Tools }},
	"summary":         {cel.StringType, func(e *Event) any { return types.String(e.Summary) }},
	"proposed_action": {cel.StringType, func(e *Event) any { return types.String(e.ProposedAction) }},
	"declared":        {cel.BoolType, func(e *Event) any { return types.Bool(e.Declared) }},
	"model":           {cel.StringType, func(e *Event) any { return types.String(e.Model) }},
	"provider":        {cel.StringType, func(e *Event) any { return types.String(e.Provider) }},
	"project":         {cel.StringType, func(e *Event) any { return types.String(e.Project) }},
	"status":          {cel.StringType, func(e *Event) any { return types.String(e.Status) }},
	"cost_usd":        {cel.DoubleType, func(e *Event) any { return types.Double(e.CostUSD) }},
	"tokens":          {cel.IntType, func(e *Event) any { return types.Int(e.Tokens) }},
	"input_tokens":    {cel.IntType, func(e *Event) any { return types.Int(e.InputTokens) }},
	"output_tokens":   {cel.IntType, func(e *Event) any { return types.Int(e.OutputTokens) }},
	"max_tokens":      {cel.IntType, func(e *Event) any { return types.Int(e.MaxTokens) }},
	"estimate_usd":    {cel.DoubleType, func(e *Event) any { return types.Double(e.EstimateUSD) }},
	"estimate_tokens": {cel.IntType, func(e *Event) any { return types.Int(e.EstimateTokens) }},
	"unpriced":        {cel.BoolType, func(e *Event) any { return types.Bool(e.Unpriced) }},
	"depth":           {cel.IntType, func(e *Event) any { return types.Int(e.Depth) }},
	"attempt":         {cel.IntType, func(e *Event) any { return types.Int(e.Attempt) }},
	"session":         {cel.StringType, func(e *Event) any { return types.String(e.Session) }},
	"run":             {cel.StringType, func(e *Event) any { return types.String(e.Run) }},
	"task":            {cel.StringType, func(e *Event) any { return types.String(e.Task) }},
	"trace":           {cel.StringType, func(e *Event) any { return types.String(e.Trace) }},
	"to":              {cel.StringType, func(e *Event) any { return types.String(e.To) }},
	"from":            {cel.StringType, func(e *Event) any { return types.String(e.From) }},
	"subject":         {cel.StringType, func(e *Event) any { return types.String(e.Subject) }},
	"thread":          {cel.StringType, func(e *Event) any { return types.String(e.Thread) }},
	"priority":        {cel.StringType, func(e *Event) any { return types.String(e.Priority) }},
	"query_type":      {cel.StringType, func(e *Event) any { return types.String(e.QueryType) }},
	"user":            {cel.StringType, func(e *Event) any { return types.String(e.User) }},
	"tier":            {cel.StringType, func(e *Event) any { return types.String(e.Tier) }},
	"external":        {cel.BoolType, func(e *Event) any { return types.Bool(e.External) }},

	// Facts, which are found when the first rule reads one.
	"does":           {cel.StringType, func(e *Event) any { e.Read(); return types.String(e.class()) }},
	"commands":       {cel.ListType(commandType), func(e *Event) any { return commandList(e.Facts().Commands) }},
	"opaque":         {cel.BoolType, func(e *Event) any { return types.Bool(len(e.Facts().Opaque) > 0) }},
	"opaque_reasons": {texts, func(e *Event) any { return e.Facts().OpaqueReasons() }},
	"paths":          {texts, func(e *Event) any { return e.pathList(allPaths, e.Facts().Paths) }},
	"reads":          {texts, func(e *Event) any { return e.pathList(readPaths, e.Facts().Reads) }},
	"writes":         {texts, func(e *Event) any { return e.pathList(writtenPaths, e.Facts().Writes) }},
	"deletes":        {texts, func(e *Event) any { return e.pathList(deletedPaths, e.Facts().Deletes) }},
	"secrets":        {texts, func(e *Event) any { return e.Secrets() }},
	"hosts":          {texts, func(e *Event) any { return e.Facts().Hosts }},
}

// commandFields are what rules see of a command of a shell text.
var commandFields = map[string]field[facts.Command]{
	"name":    {cel.StringType, func(c *facts.Command) any { return types.String(c.Name) }},
	"args":    {texts, func(c *facts.Command) any { return c.Args }},
	"flags":   {texts, func(c *facts.Command) any { return c.Flags }},
	"targets": {texts, func(c *facts.Command) any { return c.Targets }},
	"assigns": {cel.MapType(cel.StringType, cel.StringType), func(c *facts.Command) any { return c.Assigns }},
}

// agentFields are what rules see of the agent.
var agentFields = map[string]field[Agent]{
	"name":      {cel.StringType, func(a *Agent) any { return types.String(a.Name) }},
	"address":   {cel.StringType, func(a *Agent) any { return types.String(a.Address) }},
	"workspace": {cel.StringType, func(a *Agent) any { return types.String(a.Workspace) }},
	"trust":     {cel.StringType, func(a *Agent) any { return types.String(a.Trust) }},
	"labels":    {cel.MapType(cel.StringType, cel.StringType), func(a *Agent) any { return a.Labels }},
	"suspended": {cel.BoolType, func(a *Agent) any { return types.Bool(a.Suspended) }},
}

// counters are the functions of recent. Counts are whole numbers, money is not. rulebook
// counts under these names, which are stored with decisions.
var counters = map[string]*cel.Type{
	"actions":    cel.IntType,
	"prompts":    cel.IntType,
	"tool_calls": cel.IntType,
	"signals":    cel.IntType,
	"messages":   cel.IntType,
	"tasks":      cel.IntType,
	"allowed":    cel.IntType,
	"blocks":     cel.IntType,
	"defers":     cel.IntType,
	"gates":      cel.IntType,
	"rejections": cel.IntType,
	"tokens":     cel.IntType,
	"cost":       cel.DoubleType,
}

// provider tells CEL about our types, on top of those it has.
type provider struct{ types.Provider }

func (p provider) FindStructType(name string) (*types.Type, bool) {
	for _, t := range []*types.Type{eventType, commandType, agentType, userType, delegationType, recentType} {
		if t.TypeName() == name {
			return types.NewTypeTypeWithParam(t), true
		}
	}
	return p.Provider.FindStructType(name)
}

func (p provider) FindStructFieldNames(name string) ([]string, bool) {
	switch name {
	case eventType.TypeName():
		return sortedKeys(eventFields), true
	case commandType.TypeName():
		return sortedKeys(commandFields), true
	case agentType.TypeName():
		return sortedKeys(agentFields), true
	case userType.TypeName():
		return sortedKeys(userFields), true
	case delegationType.TypeName():
		return sortedKeys(delegationFields), true
	case recentType.TypeName():
		return nil, true
	}
	return p.Provider.FindStructFieldNames(name)
}

// FindStructFieldType is where a misspelt field is found: the checker asks for every field that
// an expression selects.
func (p provider) FindStructFieldType(name, fieldName string) (*types.FieldType, bool) {
	switch name {
	case eventType.TypeName():
		return fieldType(eventFields, fieldName)
	case commandType.TypeName():
		return fieldType(commandFields, fieldName)
	case agentType.TypeName():
		return fieldType(agentFields, fieldName)
	case userType.TypeName():
		return fieldType(userFields, fieldName)
	case delegationType.TypeName():
		return fieldType(delegationFields, fieldName)
	case recentType.TypeName():
		return nil, false
	}
	return p.Provider.FindStructFieldType(name, fieldName)
}

// fieldType tells CEL how to read a field and whether has() is true for it.
func fieldType[T any](fields map[string]field[T], name string) (*types.FieldType, bool) {
	f, ok := fields[name]
	if !ok {
		return nil, false
	}
	return &types.FieldType{
		Type:    f.typ,
		IsSet:   func(target any) bool { return !isEmpty(f.get(target.(*T))) },
		GetFrom: func(target any) (any, error) { return f.get(target.(*T)), nil },
	}, true
}

// isEmpty reports whether has() is false for the value of a field.
func isEmpty(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		return len(v) == 0
	case map[string]string:
		return len(v) == 0
	case map[string]int64:
		return len(v) == 0
	case []any:
		return len(v) == 0
	case []string:
		return len(v) == 0
	case traits.Zeroer:
		return v.IsZeroValue()
	}
	return false
}

// object is event, agent or recent as a CEL value: something that has fields and
// functions, and is nothing in itself.
type object struct {
	typ   *types.Type
	value any
}

func (o *object) Type() ref.Type              { return o.typ }
func (o *object) Value() any                  { return o.value }
func (o *object) Equal(other ref.Val) ref.Val { return types.Bool(o.Type() == other.Type()) }

func (o *object) ConvertToType(t ref.Type) ref.Val {
	return types.NewErr("%s cannot be turned into %s", o.typ.TypeName(), t.TypeName())
}

func (o *object) ConvertToNative(t reflect.Type) (any, error) {
	return nil, fmt.Errorf("%s cannot be turned into %s", o.typ.TypeName(), t)
}

var _ ref.Val = (*object)(nil)

// FieldTypes are the types of the fields that rules see of event, agent, user or delegation, by name.
func FieldTypes(owner string) map[string]*cel.Type {
	return map[string]map[string]*cel.Type{
		"event": typesOf(eventFields), "agent": typesOf(agentFields), "user": typesOf(userFields),
		"delegation": typesOf(delegationFields),
	}[owner]
}

// typesOf are the types of the fields that rules see, by name.
func typesOf[T any](fields map[string]field[T]) map[string]*cel.Type {
	kinds := map[string]*cel.Type{}
	for name, f := range fields {
		kinds[name] = f.typ
	}
	return kinds
}

// CounterNames are the names of the counters, sorted.
func CounterNames() []string { return sortedKeys(counters) }

// IsCounter reports whether a name is that of a counter, with or without a scope.
func IsCounter(name string) bool {
	base, scope, scoped := strings.Cut(name, ".")
	if base == ruleCounter {
		return ruleName.MatchString(scope)
	}
	_, known := counters[base]
	return known && (!scoped || slices.Contains(Scopes, scope))
}
