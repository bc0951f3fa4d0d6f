// Package stats sums up a few measurements and writes tables. Layer: bench; imports nothing of ours.
package stats

import (
	"fmt"
	"slices"
	"strings"
)

// Range is the median of some values with the smallest and the largest.
type Range struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	N      int     `json:"n"`
}

// Of sums values up; of none it is zero.
func Of(v ...float64) Range {
	if len(v) == 0 {
		return Range{}
	}
	s := slices.Sorted(slices.Values(v))
	n := len(s)
	return Range{Median: (s[(n-1)/2] + s[n/2]) / 2, Min: s[0], Max: s[n-1], N: n}
}

// Text writes a range as "median (min-max)" with so many decimals and thousands separated.
func (r Range) Text(decimals int) string {
	switch r.N {
	case 0:
		return "-"
	case 1:
		return Number(r.Median, decimals)
	}
	return fmt.Sprintf("%s (%s-%s)", Number(r.Median, decimals), Number(r.Min, decimals), Number(r.Max, decimals))
}

// Number writes a number with thousands separated.
func Number(v float64, decimals int) string {
	s := fmt.Sprintf("%.*f", decimals, v)
	whole, frac, _ := strings.Cut(s, ".")
	sign := ""
	if strings.HasPrefix(whole, "-") {
		sign, whole = "-", whole[1:]
	}
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if frac != "" {
		frac = "." + frac
	}
	return sign + whole + frac
}

// Table is text in columns.
type Table struct {
	Head []string
	Rows [][]string
}

// Add adds a row.
func (t *Table) Add(cells ...string) { t.Rows = append(t.Rows, cells) }

// Text aligns the columns with blanks.
func (t *Table) Text() string {
	width := make([]int, len(t.Head))
	for _, r := range append([][]string{t.Head}, t.Rows...) {
		for i, c := range r {
			width[i] = max(width[i], len(c))
		}
	}
	var b strings.Builder
	for _, r := range append([][]string{t.Head}, t.Rows...) {
		var line strings.Builder
		for i, c := range r {
			fmt.Fprintf(&line, "%-*s  ", width[i], c)
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return b.String()
}

// Markdown writes the table as Markdown.
func (t *Table) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "| %s |\n|%s\n", strings.Join(t.Head, " | "), strings.Repeat("---|", len(t.Head)))
	for _, r := range t.Rows {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(r, " | "))
	}
	return b.String()
}
