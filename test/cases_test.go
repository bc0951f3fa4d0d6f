// Package test holds what belongs to all tests: the list of cases and the tests that state them.
package test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	row       = regexp.MustCompile(`(?m)^\| (\d\d|(?:FLINK|KAFKA|SPARK)-\d+|[a-z-]+ \d+) \|(.*)\|$`)
	reference = regexp.MustCompile("`([^`:]+)(?::([^`/]+)(?:/([^`]+))?)?`")
)

// Every case is stated by a test that exists.
func TestCases(t *testing.T) {
	text, err := os.ReadFile("CASES.md")
	if err != nil {
		t.Fatal(err)
	}
	stated := map[string]int{}
	for _, r := range row.FindAllStringSubmatch(string(text), -1) {
		if stated[r[1]] > 0 {
			t.Errorf("case %s has two rows", r[1])
		}
		columns := strings.Split(r[2], "|")
		for _, ref := range reference.FindAllStringSubmatch(columns[len(columns)-1], -1) {
			stated[r[1]]++
			if problem := missing(ref[1], ref[2], ref[3]); problem != "" {
				t.Errorf("case %s: %s: %s", r[1], ref[0], problem)
			}
		}
	}
	for _, c := range append(strings.Fields("01 02 03 04 06 08 09 11 12 14 15 17 18 20 22 24 25 28 29 30 31 33 35 FLINK-8613 FLINK-9567 FLINK-15297 FLINK-31109 FLINK-31162 FLINK-35886 KAFKA-9666 SPARK-29683"),
		"iceberg 3695", "flink 2207", "streampark 2643", "sarama 1670", "connect 4419", "beam 18677", "hazelcast-jet 747") {
		if stated[c] == 0 {
			t.Errorf("case %s is stated by no test", c)
		}
	}
}

// missing says what of a reference does not exist: the file, the test (or the entry of a suite), the subtest's name.
func missing(file, test, sub string) string {
	b, err := os.ReadFile(filepath.Join("..", file))
	if err != nil {
		return err.Error()
	}
	source := string(b)
	switch {
	case test == "":
	case strings.HasSuffix(file, "_test.go") && !strings.Contains(source, "\nfunc "+test+"(t *testing.T)"):
		return "there is no such test"
	case !strings.HasSuffix(file, "_test.go") && !strings.Contains(source, `{"`+test+`",`):
		return "the suite has no such entry"
	case sub != "" && !strings.Contains(source, `"`+sub+`"`):
		return "there is no such subtest"
	}
	return ""
}
