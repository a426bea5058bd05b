package featuregate

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// maxText is what a ConfigMap can hold, in bytes.
const maxText = 1 << 20

// FieldError is one thing that is wrong with a policy.
type FieldError struct {
	// Path is the field's, such as regions[1].stages[0].inPlace; empty: it is about the text as a whole.
	Path string
	// Message says what is wrong, in one line.
	Message string
}

// Error gives path and message in one line.
func (e *FieldError) Error() string {
	if e.Path == "" {
		return e.Message
	}
	return e.Path + ": " + e.Message
}

// Parse reads a policy from YAML or JSON and checks it. The error joins a *FieldError for everything that is wrong.
func Parse(text []byte) (*Policy, error) {
	value, err := generic(text)
	if err != nil {
		return nil, err
	}
	p := &Policy{}
	var r reader
	r.read("", value, reflect.ValueOf(p).Elem())
	if len(r.errs) == 0 {
		r.errs = check(p)
	}
	if len(r.errs) > 0 {
		return nil, errors.Join(r.errs...)
	}
	return p, nil
}

// generic reads YAML into maps, slices, strings, booleans and numbers. Double keys are errors, a second document too.
func generic(text []byte) (any, error) {
	if len(text) > maxText {
		return nil, &FieldError{Message: fmt.Sprintf("the policy has %d bytes, at most %d are read", len(text), maxText)}
	}
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	count := 0
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, &FieldError{Message: "not YAML: " + oneLine(err.Error())}
		}
		if len(bytes.TrimSpace(document)) > 0 {
			count++
		}
	}
	if count > 1 {
		return nil, &FieldError{Message: fmt.Sprintf("the text has %d documents: a policy is one", count)}
	}
	data, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, &FieldError{Message: "not YAML: " + oneLine(err.Error())}
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, &FieldError{Message: "not YAML: " + oneLine(err.Error())}
	}
	if value == nil {
		return nil, &FieldError{Message: "the policy is empty"}
	}
	return value, nil
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// reader fills Go values and notes everything that does not fit, by the path of its field.
type reader struct{ errs []error }

func (r *reader) fail(path, format string, args ...any) {
	r.errs = append(r.errs, &FieldError{Path: path, Message: fmt.Sprintf(format, args...)})
}

// read fills one value of any type that a Policy has. A null is as if the field were not there.
func (r *reader) read(path string, value any, into reflect.Value) {
	if value == nil {
		return
	}
	switch into.Interface().(type) {
	case metav1.Time:
		r.readTime(path, value, into)
		return
	case metav1.Duration:
		r.readDuration(path, value, into)
		return
	case Level:
		if on, ok := value.(bool); ok { // YAML 1.1 reads On and Off so
			value = string(LevelOff)
			if on {
				value = string(LevelOn)
			}
		}
	}
	switch into.Kind() {
	case reflect.Pointer:
		into.Set(reflect.New(into.Type().Elem()))
		r.read(path, value, into.Elem())
	case reflect.Struct:
		r.readStruct(path, value, into)
	case reflect.Map:
		r.readMap(path, value, into)
	case reflect.Slice:
		r.readSlice(path, value, into)
	default:
		r.readScalar(path, value, into)
	}
}

func (r *reader) readStruct(path string, value any, into reflect.Value) {
	object, ok := value.(map[string]any)
	if !ok {
		r.fail(path, "%s is no object", show(value))
		return
	}
	fields := fieldsOf(into)
	known := make([]string, 0, len(fields))
	for _, f := range fields {
		known = append(known, f.name)
	}
	for _, name := range sortedKeys(object) {
		i := slices.Index(known, name)
		if i < 0 {
			r.fail(join(path, name), "unknown field: known are %s", strings.Join(known, ", "))
			continue
		}
		r.read(join(path, name), object[name], fields[i].value)
	}
}

type namedField struct {
	name  string
	value reflect.Value
}

// fieldsOf are the fields of a struct as YAML names them, those of embedded structs too.
func fieldsOf(v reflect.Value) []namedField {
	var out []namedField
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if f.Anonymous {
			out = append(out, fieldsOf(v.Field(i))...)
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		out = append(out, namedField{name: name, value: v.Field(i)})
	}
	return out
}

func (r *reader) readMap(path string, value any, into reflect.Value) {
	object, ok := value.(map[string]any)
	if !ok {
		r.fail(path, "%s is no object", show(value))
		return
	}
	into.Set(reflect.MakeMap(into.Type()))
	for _, name := range sortedKeys(object) {
		element := reflect.New(into.Type().Elem()).Elem()
		r.read(join(path, name), object[name], element)
		into.SetMapIndex(reflect.ValueOf(name), element)
	}
}

func (r *reader) readSlice(path string, value any, into reflect.Value) {
	list, ok := value.([]any)
	if !ok {
		r.fail(path, "%s is no list", show(value))
		return
	}
	into.Set(reflect.MakeSlice(into.Type(), len(list), len(list)))
	for i, element := range list {
		at := fmt.Sprintf("%s[%d]", path, i)
		if element == nil {
			r.fail(at, "is empty")
			continue
		}
		r.read(at, element, into.Index(i))
	}
}

func (r *reader) readScalar(path string, value any, into reflect.Value) {
	switch into.Kind() {
	case reflect.String:
		if text, ok := value.(string); ok {
			into.SetString(text)
			return
		}
		r.fail(path, "%s is no string", show(value))
	case reflect.Bool:
		if b, ok := value.(bool); ok {
			into.SetBool(b)
			return
		}
		r.fail(path, "%s is neither true nor false", show(value))
	default: // an int
		if number, ok := value.(json.Number); ok {
			if n, err := strconv.ParseInt(number.String(), 10, 32); err == nil {
				into.SetInt(n)
				return
			}
		}
		r.fail(path, "%s is no whole number", show(value))
	}
}

func (r *reader) readTime(path string, value any, into reflect.Value) {
	text, _ := value.(string)
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		r.fail(path, "%s is no time such as 2026-03-02T08:00:00Z", show(value))
		return
	}
	into.Set(reflect.ValueOf(metav1.NewTime(at)))
}

func (r *reader) readDuration(path string, value any, into reflect.Value) {
	text, _ := value.(string)
	d, err := time.ParseDuration(text)
	if err != nil {
		r.fail(path, "%s is no duration such as 30m or 24h", show(value))
		return
	}
	into.Set(reflect.ValueOf(metav1.Duration{Duration: d}))
}

// show is a value as people would write it, not all of a long one.
func show(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return "this"
	}
	const most = 60
	if runes := []rune(string(text)); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return string(text)
}

// join is the path of a field of an object. A name that is no identifier is quoted, so that a message stays one line.
func join(path, name string) string {
	if strings.ContainsFunc(name, func(c rune) bool { return c <= ' ' || c == '.' || c == '"' || c > '~' }) || name == "" {
		return path + "[" + strconv.Quote(name) + "]"
	}
	if path == "" {
		return name
	}
	return path + "." + name
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
