package main

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// cell is one field of a table.
type cell struct {
	text  string
	style style
}

// table prints rows in aligned columns under a heading on a terminal, and as
// tab-separated lines without one when piped.
type table struct {
	streams
	heading []string
	rows    [][]cell
}

func newTable(s streams, heading ...string) *table { return &table{streams: s, heading: heading} }

func (t *table) add(cells ...cell) {
	for i := range cells {
		cells[i].text = shown(cells[i].text)
	}
	t.rows = append(t.rows, cells)
}

func (t *table) print() {
	if !t.outTerminal {
		for _, row := range t.rows {
			fields := make([]string, len(row))
			for i, c := range row {
				fields[i] = c.text
			}
			fmt.Fprintln(t.out, strings.Join(fields, "\t"))
		}
		return
	}
	heading := make([]cell, len(t.heading))
	for i, text := range t.heading {
		heading[i] = cell{text, faint}
	}
	rows := append([][]cell{heading}, t.rows...)
	widths := t.widths(rows)
	for _, row := range rows {
		fmt.Fprintln(t.out, strings.TrimRight(t.line(row, widths), " "))
	}
}

func (t *table) widths(rows [][]cell) []int {
	widths := make([]int, len(t.heading))
	for _, row := range rows {
		for i, c := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(c.text))
		}
	}
	return widths
}

const columnGap = 2

func (t *table) line(row []cell, widths []int) string {
	var b strings.Builder
	used := 0
	for i, c := range row {
		text := c.text
		if i == len(row)-1 {
			if room := t.width - used; t.width > 0 && room > 1 {
				text = cut(text, room)
			}
			b.WriteString(t.styled(text, c.style))
			break
		}
		b.WriteString(t.styled(text, c.style))
		b.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(text)+columnGap))
		used += widths[i] + columnGap
	}
	return b.String()
}

// cut shortens text to so many columns. Colours take none.
func cut(text string, columns int) string {
	if columns <= 0 {
		return text
	}
	column, escape := 0, false
	for at, r := range text {
		switch {
		case r == '\x1b':
			escape = true
		case escape:
			escape = r != 'm'
		case column == columns-1 && visible(text[at:]) > 1:
			return text[:at] + "…" + resetIfColoured(text[:at])
		default:
			column++
		}
	}
	return text
}

// visible counts the columns of text.
func visible(text string) int {
	n, escape := 0, false
	for _, r := range text {
		switch {
		case r == '\x1b':
			escape = true
		case escape:
			escape = r != 'm'
		default:
			n++
		}
	}
	return n
}

func resetIfColoured(text string) string {
	if strings.Contains(text, "\x1b") {
		return "\x1b[0m"
	}
	return ""
}
