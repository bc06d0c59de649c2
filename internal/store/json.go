package store

import (
	"database/sql/driver"
	"encoding/json"
	"fmt"
)

// JSON is a value that is kept in a TEXT column. It binds a string: bytes would
// become a BLOB in SQLite.
type JSON[T any] struct{ V T }

// JSONOf wraps v for a JSON column.
func JSONOf[T any](v T) JSON[T] { return JSON[T]{V: v} }

// Value implements driver.Valuer.
func (j JSON[T]) Value() (driver.Value, error) {
	text, err := json.Marshal(j.V)
	if err != nil {
		return nil, err
	}
	return string(text), nil
}

// Scan implements sql.Scanner. What is not JSON of T, which only somebody else
// can have written, is the zero value: it hides nothing else of its row.
func (j *JSON[T]) Scan(src any) error {
	var text []byte
	switch v := src.(type) {
	case nil:
	case string:
		text = []byte(v)
	case []byte:
		text = v
	default:
		return fmt.Errorf("a JSON column holds a %T", src)
	}
	var value, nothing T
	if len(text) > 0 && json.Unmarshal(text, &value) != nil {
		value = nothing
	}
	j.V = value
	return nil
}
