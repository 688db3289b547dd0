package wire

import (
	"bytes"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"signalbox/internal/fault"
)

// RefuseNUL refuses text with a NUL character, which JSON allows and PostgreSQL
// does not. data is v as JSON, and is searched first, since nearly none has one. Raw members
// are not looked into: they are stored as bytes.
func RefuseNUL(data []byte, v any) error {
	if !bytes.Contains(data, []byte(`\u0000`)) {
		return nil
	}
	path, found := nulIn(reflect.ValueOf(v), nil)
	if !found {
		return nil
	}
	field := dotted(path)
	return fault.New(fault.InvalidPayload,
		"The field %q contains the character \\u0000, which is not allowed in text. Leave it out.", field).About(field)
}

// nulIn finds the path of the first text with a NUL.
func nulIn(v reflect.Value, path []string) ([]string, bool) {
	switch v.Kind() {
	case reflect.String:
		return path, strings.ContainsRune(v.String(), 0)
	case reflect.Pointer, reflect.Interface:
		return nulIn(v.Elem(), path)
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return nil, false
		}
		for i := range v.Len() {
			if p, found := nulIn(v.Index(i), append(path, strconv.Itoa(i))); found {
				return p, true
			}
		}
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			if p, found := nulIn(it.Key(), path); found {
				return p, true
			}
			if p, found := nulIn(it.Value(), append(path, it.Key().String())); found {
				return p, true
			}
		}
	case reflect.Struct:
		for f, fv := range v.Fields() {
			name, embedded := jsonName(f)
			if name == "" && !embedded {
				continue
			}
			below := path
			if !embedded {
				below = slices.Concat(path, []string{name})
			}
			if p, found := nulIn(fv, below); found {
				return p, true
			}
		}
	default:
	}
	return nil, false
}
