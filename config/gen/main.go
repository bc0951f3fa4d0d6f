// Command gen writes the reference of all options to the file named by its argument.
package main

import (
	"fmt"
	"os"

	"github.com/thalweg/thalweg/config"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: gen FILE")
		os.Exit(2)
	}
	if err := os.WriteFile(os.Args[1], []byte(config.Markdown()), 0o644); err != nil { //nolint:gosec // a document for everyone
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
