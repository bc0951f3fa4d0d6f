// Command gen writes the reference of all options to the file named by its argument.
package main

import (
	"log"
	"os"

	"github.com/thalweg/thalweg/config"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: gen FILE")
	}
	if err := os.WriteFile(os.Args[1], []byte(config.Markdown()), 0o644); err != nil { //nolint:gosec // a document for everyone
		log.Fatal(err)
	}
}
