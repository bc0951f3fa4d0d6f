// Command plain is a Go program that has nothing to do with Thalweg.
package main

import "os"

func main() { _, _ = os.Stdout.WriteString("plain\n") }
