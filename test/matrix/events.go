package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// result is what a suite did on a kind of cluster, a line of the machine-readable output.
type result struct {
	Cluster string `json:"cluster"`
	Suite   string `json:"suite"`
	Passed  int    `json:"passed"` // tests, those within others not counted
	// Failed are the tests that failed, the innermost ones, with what they said last.
	Failed map[string]string `json:"failed,omitempty"`
	// Impossible are the tests that cannot run on this kind of cluster, with the reason; the suite's own name when none of it can.
	Impossible map[string]string `json:"impossible,omitempty"`
	Seconds    float64           `json:"seconds"`
}

// event is one of go test -json (go doc test2json).
type event struct {
	Action, Package, Test, Output string
}

// reason begins what rigtest.Needs says of a test that is skipped.
var reason = regexp.MustCompile(`: (needs .*: this cluster is .*)`)

// frame is what go test itself prints.
var frame = regexp.MustCompile(`^(---|===|FAIL|PASS|ok |exit status)`)

// source is the place of a line that a test prints.
var source = regexp.MustCompile(`^\s+\S+_test\.go:\d+: `)

// read takes the results from the events of go test -json. What the tests print goes to log. A test that is skipped for another reason than the
// kind of cluster has failed, and so has a run without a test.
func (r *result) read(events io.Reader, log io.Writer) error {
	r.Failed, r.Impossible = map[string]string{}, map[string]string{}
	said := map[string]string{}
	in := bufio.NewReader(events)
	for {
		line, rerr := in.ReadBytes('\n')
		if rerr != nil && !errors.Is(rerr, io.EOF) {
			return fmt.Errorf("matrix: the output of go test: %w", rerr)
		}
		if rerr != nil && len(line) == 0 {
			break
		}
		var e event
		if err := json.Unmarshal(line, &e); err != nil { // what somebody else has printed
			e = event{Output: string(line)}
		}
		if _, err := io.WriteString(log, e.Output); err != nil {
			return fmt.Errorf("matrix: log: %w", err)
		}
		if e.Action == "output" {
			if t := strings.TrimSpace(source.ReplaceAllString(e.Output, ": ")); t != "" && !frame.MatchString(t) {
				said[e.Test] = t
			}
			continue
		}
		r.count(e, said[e.Test])
	}
	if r.Passed+len(r.Failed)+len(r.Impossible) == 0 {
		r.Failed[r.Suite] = "no test ran"
	}
	return nil
}

func (r *result) count(e event, last string) {
	name, inner := e.Test, strings.Contains(e.Test, "/")
	last = strings.TrimPrefix(last, ": ")
	switch e.Action {
	case "pass":
		if name != "" && !inner {
			r.Passed++
		}
	case "skip":
		if m := reason.FindStringSubmatch(": " + last); m != nil {
			r.Impossible[name] = m[1]
		} else if name != "" {
			r.Failed[name] = "skipped: " + last
		}
	case "fail":
		if name == "" {
			name = r.Suite
		}
		for _, f := range slices.Collect(maps.Keys(r.Failed)) { // one inside of it has said why, or it is the suite
			if name == r.Suite || strings.HasPrefix(f, name+"/") {
				return
			}
		}
		r.Failed[name] = last
	}
}

// ok reports whether all tests passed that are possible.
func (r result) ok() bool { return len(r.Failed) == 0 }

func (r result) took() time.Duration {
	return time.Duration(r.Seconds * float64(time.Second)).Round(time.Second)
}
