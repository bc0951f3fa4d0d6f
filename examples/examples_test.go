// Package examples checks that what is said about the examples is all of them.
package examples

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Every example has its paragraph.
func TestReadmeNamesEachExample(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	mains, err := filepath.Glob("*/main.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mains {
		if name := filepath.Dir(m); !strings.Contains(string(text), "\n## "+name+"\n") && !strings.Contains(string(text), "`"+name+"`") {
			t.Errorf("README.md has no paragraph about %s", name)
		}
	}
}
