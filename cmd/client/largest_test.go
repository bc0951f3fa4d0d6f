package main

import (
	"strings"
	"testing"
)

func TestLargestEntries(t *testing.T) {
	dir := snapshot(t, map[string]int64{"a": 1, "a much longer key": 2, "a longer key": 3})
	out, errs, code := thalweg(t, nil, "state", "largest", "--top", "2", dir)
	if want := "count users / count (value):\n  \"a much longer key\": 26 bytes\n  \"a longer key\": 21 bytes\n"; code != 0 || out != want || errs != "" {
		t.Errorf("code %d, %s\n%s\nwant %s", code, errs, out, want)
	}
	out, _, code = thalweg(t, nil, "state", "largest", "--top", "1", "-o", "json", dir, "per-user")
	if code != 0 || !strings.HasPrefix(out, `{"operator":"count users","uid":"per-user","state":"count","keyGroup":`) || !strings.HasSuffix(out, `"key":"a much longer key","bytes":26}`+"\n") {
		t.Errorf("code %d, %s", code, out)
	}
	if _, errs, code := thalweg(t, nil, "state", "largest", "--top", "0", dir); code != exitUsage || !strings.Contains(errs, "--top 0") {
		t.Errorf("code %d, %s", code, errs)
	}
}
