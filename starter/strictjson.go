package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"

	"unwind/teardown"
)

// decodeStrict reads one JSON value into the struct or slice at into. Unlike
// encoding/json it refuses unknown and repeated fields, names that differ in
// case only, text that is not UTF-8 (escaped or not), and anything after the
// value. what names the input in messages, such as "the manifest".
func decodeStrict(what string, content []byte, into any) error {
	content = bytes.TrimPrefix(content, []byte("\ufeff"))
	if len(bytes.TrimSpace(content)) == 0 {
		return invalid("%s is empty; docs/manifest.md shows what belongs into the input", what)
	}
	if offset, found := notText(content); found {
		return &teardown.Error{Code: teardown.CodePathNotUTF8, Message: fmt.Sprintf(
			"line %d of %s holds a name that is not UTF-8; rename the file or directory, or leave it out", line(content, offset), what)}
	}
	c := fieldCheck{what: what, content: content, decoder: json.NewDecoder(bytes.NewReader(content))}
	c.decoder.UseNumber()
	if err := c.value(reflect.TypeOf(into).Elem(), ""); err != nil {
		return err
	}
	if _, err := c.decoder.Token(); !errors.Is(err, io.EOF) {
		return invalid("line %d of %s: there is more after the end of the JSON value; remove it", c.line(), what)
	}
	if err := json.Unmarshal(content, into); err != nil {
		return c.mismatch(err)
	}
	return nil
}

func invalid(format string, args ...any) error {
	return &teardown.Error{Code: teardown.CodeInvalidManifest, Message: fmt.Sprintf(format, args...)}
}

// notText finds the first byte that is not UTF-8, or the first escape that
// stands for half a character. encoding/json replaces both without a word, and
// the path would be another one.
func notText(content []byte) (offset int, found bool) {
	for i := 0; i < len(content); {
		if r, size := utf8.DecodeRune(content[i:]); r == utf8.RuneError && size <= 1 {
			return i, true
		} else if r != '\\' {
			i += size
			continue
		}
		size := escapeSize(content[i:])
		if size == 0 {
			return i, true
		}
		i += size
	}
	return 0, false
}

// escapeSize is the length of the escape at the beginning of text, both halves
// of a pair included; 0 if it is half of one.
func escapeSize(text []byte) int {
	unit, ok := escapedUnit(text)
	switch {
	case !ok:
		return min(2, len(text))
	case unit >= 0xdc00 && unit < 0xe000:
		return 0
	case unit >= 0xd800 && unit < 0xdc00:
		if low, ok := escapedUnit(text[6:]); !ok || low < 0xdc00 || low >= 0xe000 {
			return 0
		}
		return 12
	}
	return 6
}

func escapedUnit(text []byte) (unit uint64, ok bool) {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return 0, false
	}
	unit, err := strconv.ParseUint(string(text[2:6]), 16, 16)
	return unit, err == nil
}

func line(content []byte, offset int) int { return 1 + bytes.Count(content[:offset], []byte("\n")) }

// fieldCheck walks a JSON value beside the type that it is meant for.
type fieldCheck struct {
	what    string
	content []byte
	decoder *json.Decoder
}

func (c *fieldCheck) line() int { return line(c.content, int(c.decoder.InputOffset())) }

func (c *fieldCheck) token() (json.Token, error) {
	token, err := c.decoder.Token()
	if err == nil {
		return token, nil
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, invalid("%s ends in the middle; it is cut off", c.what)
	}
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		at := line(c.content, min(int(syntax.Offset), len(c.content)))
		return nil, invalid("line %d of %s is not JSON: %v", at, c.what, err)
	}
	return nil, invalid("line %d of %s is not JSON: %v", c.line(), c.what, err)
}

// value checks the next value; path is where it is, such as "runtimes[0]".
func (c *fieldCheck) value(t reflect.Type, path string) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	token, err := c.token()
	if err != nil {
		return err
	}
	delim, nested := token.(json.Delim)
	switch {
	case nested && delim == '{' && t.Kind() == reflect.Struct:
		return c.object(t, path)
	case nested && delim == '[' && t.Kind() == reflect.Slice:
		return c.list(t.Elem(), path)
	case nested, token != nil && (t.Kind() == reflect.Struct || t.Kind() == reflect.Slice):
		return c.wrongType(path, t, tokenText(token))
	}
	return nil
}

func (c *fieldCheck) object(t reflect.Type, path string) error {
	fields := jsonFields(t)
	seen := map[string]bool{}
	for {
		token, err := c.token()
		if err != nil {
			return err
		}
		key, isKey := token.(string)
		if !isKey {
			return nil // the closing brace
		}
		at := strings.TrimPrefix(path+"."+key, ".")
		field, known := fields[key]
		switch {
		case !known:
			return invalid("line %d of %s: %q is not a known field; use %s", c.line(), c.what, at, strings.Join(jsonNames(t), ", "))
		case seen[key]:
			return invalid("line %d of %s: %q is given twice; keep one", c.line(), c.what, at)
		}
		seen[key] = true
		if err := c.value(field, at); err != nil {
			return err
		}
	}
}

func (c *fieldCheck) list(element reflect.Type, path string) error {
	for i := 0; c.decoder.More(); i++ {
		if err := c.value(element, fmt.Sprintf("%s[%d]", path, i)); err != nil {
			return err
		}
	}
	_, err := c.token()
	return err
}

func (c *fieldCheck) wrongType(path string, want reflect.Type, got string) error {
	return invalid("line %d of %s: %s must be %s, not %s", c.line(), c.what, c.where(path), typeText(want), got)
}

func (c *fieldCheck) where(path string) string {
	if path == "" {
		return "it"
	}
	return strconv.Quote(path)
}

// mismatch explains a scalar of the wrong type.
func (c *fieldCheck) mismatch(err error) error {
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		return invalid("%s is not JSON: %v", c.what, err)
	}
	return invalid("line %d of %s: %q must be %s, not %s", line(c.content, min(int(wrong.Offset), len(c.content))),
		c.what, wrong.Field, typeText(wrong.Type), jsonWord(wrong.Value))
}

func jsonWord(value string) string {
	switch value {
	case "array":
		return "a list"
	case "object":
		return "an object"
	case "bool":
		return "true or false"
	}
	return "a " + value
}

func tokenText(token json.Token) string {
	switch t := token.(type) {
	case json.Delim:
		if t == '[' {
			return "a list"
		}
		return "an object"
	case string:
		return "a string"
	case bool:
		return "true or false"
	case nil:
		return "null"
	}
	return "a number"
}

func typeText(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Struct:
		return "an object"
	case reflect.Slice:
		return "a list"
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a string"
	}
	return "a whole number"
}

func jsonFields(t reflect.Type) map[string]reflect.Type {
	fields := map[string]reflect.Type{}
	for i := range t.NumField() {
		fields[jsonName(t.Field(i))] = t.Field(i).Type
	}
	return fields
}

func jsonNames(t reflect.Type) []string {
	names := make([]string, t.NumField())
	for i := range names {
		names[i] = jsonName(t.Field(i))
	}
	return names
}

func jsonName(field reflect.StructField) string {
	tag, _, _ := strings.Cut(field.Tag.Get("json"), ",")
	return tag
}
