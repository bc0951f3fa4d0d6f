package operator

import (
	"flag"
	"fmt"
	"os"
	"testing"
)

// The models of this package are many, and each of their examples opens state backends: a plain test run takes fewer than rapid's default
// of 100. make test-model takes as many as wanted.
func TestMain(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "rapid.checks" })
	if !given {
		if err := flag.Set("rapid.checks", "30"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
	}
	os.Exit(m.Run())
}
