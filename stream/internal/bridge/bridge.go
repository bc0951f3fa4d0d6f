// Package bridge lets streamtest build programs without stream exporting how. It is part of layer L4.
package bridge

import "github.com/thalweg/thalweg/runtime/graph"

// Program runs build, a func(*stream.Environment) error, twice and returns the translated graph; package stream sets it.
var Program func(name string, build any, conf map[string]string, args []string) (*graph.Program, error)
