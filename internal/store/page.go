package store

import (
	"context"
	"fmt"
	"reflect"

	"github.com/jmoiron/sqlx"
)

// Unreadable is a row that holds something that unwind cannot read: somebody
// else wrote it. ID is the row's first column. Err is a *teardown.Error.
type Unreadable struct {
	ID  string
	Err error
}

// Page is a part of a list. One row that cannot be read does not hide the others.
type Page[T any] struct {
	Rows       []T
	Unreadable []Unreadable
	// Next is the id after which the list goes on; "" if this is its end.
	Next string
}

// pageOf reads the rows of a statement, which answers at most limit of them in
// the order of its first column.
func pageOf[T any](ctx context.Context, q queries, at location, limit int, statement string, args ...any) (page Page[T], err error) {
	rows, err := q.on.QueryxContext(ctx, q.on.Rebind(statement), bound(args)...)
	if err != nil {
		return page, err
	}
	defer func() { _ = rows.Close() }()
	last := ""
	read := 0
	for ; rows.Next(); read++ {
		if last, err = firstColumn(rows); err != nil {
			return page, err
		}
		var row T
		if err := rows.StructScan(&row); err != nil {
			page.Unreadable = append(page.Unreadable, Unreadable{ID: last, Err: at.explain(fmt.Errorf("row %q: %w", last, err))})
			continue
		}
		inUTC(reflect.ValueOf(&row).Elem())
		page.Rows = append(page.Rows, row)
	}
	if read == limit {
		page.Next = last
	}
	return page, rows.Err()
}

func firstColumn(rows *sqlx.Rows) (string, error) {
	columns, err := rows.SliceScan()
	if err != nil {
		return "", err
	}
	if text, ok := columns[0].([]byte); ok {
		return string(text), nil
	}
	return fmt.Sprint(columns[0]), nil
}
