package store

import (
	"context"
	"database/sql"
	"errors"
	"reflect"
	"time"

	"github.com/jmoiron/sqlx"
)

// queries runs statements, inside or outside of a transaction. Placeholders are
// written "?". Times are bound and read as UTC with microseconds, here and
// nowhere else.
type queries struct{ on sqlx.ExtContext }

// exec answers how many rows the statement changed.
func (q queries) exec(ctx context.Context, statement string, args ...any) (int64, error) {
	result, err := q.on.ExecContext(ctx, q.on.Rebind(statement), bound(args)...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// one reads the first row into dest, or sets it to zero if there is none.
func (q queries) one(ctx context.Context, dest any, statement string, args ...any) (found bool, err error) {
	err = sqlx.GetContext(ctx, q.on, dest, q.on.Rebind(statement), bound(args)...)
	if errors.Is(err, sql.ErrNoRows) {
		reflect.ValueOf(dest).Elem().SetZero() // sqlx has set its pointers
		return false, nil
	}
	if err != nil {
		return false, err
	}
	inUTC(reflect.ValueOf(dest).Elem())
	return true, nil
}

// all reads every row into dest, a pointer to a slice.
func (q queries) all(ctx context.Context, dest any, statement string, args ...any) error {
	if err := sqlx.SelectContext(ctx, q.on, dest, q.on.Rebind(statement), bound(args)...); err != nil {
		return err
	}
	inUTC(reflect.ValueOf(dest).Elem())
	return nil
}

// among is all for a statement with one "(?)" that a slice fills; none if the
// slice is empty.
func (q queries) among(ctx context.Context, dest any, statement string, args ...any) error {
	for _, arg := range args {
		if v := reflect.ValueOf(arg); v.Kind() == reflect.Slice && v.Len() == 0 {
			return nil
		}
	}
	expanded, flat, err := sqlx.In(statement, args...)
	if err != nil {
		return err
	}
	return q.all(ctx, dest, expanded, flat...)
}

// stamp is the moment as the databases keep it.
func stamp(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

func now() time.Time { return stamp(time.Now()) }

func bound(args []any) []any {
	out := make([]any, len(args))
	for i, arg := range args {
		switch v := arg.(type) {
		case time.Time:
			out[i] = stamp(v)
		case *time.Time:
			if v != nil {
				out[i] = stamp(*v)
			}
		default:
			out[i] = arg
		}
	}
	return out
}

var timeType = reflect.TypeFor[time.Time]()

// inUTC sets every time that was read to UTC: lib/pq answers in the zone of the
// session, the SQLite driver in one that it made up.
func inUTC(v reflect.Value) {
	switch {
	case v.Type() == timeType:
		v.Set(reflect.ValueOf(v.Interface().(time.Time).UTC()))
	case v.Kind() == reflect.Pointer && v.Type().Elem() == timeType:
		if !v.IsNil() {
			inUTC(v.Elem())
		}
	case v.Kind() == reflect.Slice:
		for i := range v.Len() {
			inUTC(v.Index(i))
		}
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				inUTC(v.Field(i))
			}
		}
	}
}
