package stats

import "testing"

func TestRange(t *testing.T) {
	for _, c := range []struct {
		in   []float64
		want string
	}{
		{nil, "-"},
		{[]float64{2}, "2.0"},
		{[]float64{3, 1, 2}, "2.0 (1.0-3.0)"},
		{[]float64{4, 1, 2, 3}, "2.5 (1.0-4.0)"},
		{[]float64{1234567, -1234.5}, "616,666.2 (-1,234.5-1,234,567.0)"},
	} {
		if got := Of(c.in...).Text(1); got != c.want {
			t.Errorf("%v: got %s, want %s", c.in, got, c.want)
		}
	}
}

func TestTable(t *testing.T) {
	tab := Table{Head: []string{"a", "long"}}
	tab.Add("value", "1")
	if got, want := tab.Text(), "a      long\nvalue  1\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := tab.Markdown(), "| a | long |\n|---|---|\n| value | 1 |\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
