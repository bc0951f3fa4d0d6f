// Command batch is a job in BATCH from files to files that tells a folder of this machine what its tasks do, and waits there when it is told to.
//
//	read (wide) --rejected lines--> rejected (commits at the end of its stage)
//	     \--> sum (held up) --> out (commits)
//	names (at one TaskManager) --/
//
// A task that opens leaves a file "<stage>-<subtask>-<attempt>" with the number of its process. A sum that has got a record leaves
// "held-<subtask>-<attempt>", and waits for the file "go-<attempt>".
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/thalweg/thalweg/connector/file"
	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/stream"
)

// entry is a line of the input: a key and a number.
type entry struct {
	Key string
	N   int64
}

var rejected = stream.NewOutputTag[string]("rejected")

// marks leaves the files.
type marks struct {
	dir, stage       string
	subtask, attempt int
}

func (m *marks) leave(name string) error {
	p := filepath.Join(m.dir, fmt.Sprintf("%s-%d-%d", name, m.subtask, m.attempt))
	if err := os.WriteFile(p+".new", []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
		return err
	}
	return os.Rename(p+".new", p)
}

func (m *marks) Open(rt *stream.TaskContext) error {
	m.subtask, m.attempt = rt.Subtask(), rt.Attempt()
	return m.leave(m.stage)
}

func (m *marks) Close() error { return nil }

// parse splits lines.
type parse struct{ marks }

func (p *parse) ProcessElement(ctx *stream.ProcessContext, line string, out *stream.Collector[entry]) error {
	key, number, _ := strings.Cut(line, ",")
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		ctx.Output(rejected, line)
		return nil
	}
	out.Collect(entry{key, n})
	return nil
}

// hold waits before it passes the first record on.
type hold struct {
	marks
	passed bool
}

func (h *hold) ProcessElement(_ *stream.ProcessContext, e entry, out *stream.Collector[string]) error {
	if !h.passed {
		if err := h.leave("held"); err != nil {
			return err
		}
		pace := time.NewTicker(5 * time.Millisecond)
		defer pace.Stop()
		for deadline := time.Now().Add(2 * time.Minute); ; <-pace.C {
			if _, err := os.Stat(filepath.Join(h.dir, fmt.Sprintf("go-%d", h.attempt))); err == nil {
				break
			}
			if time.Now().After(deadline) {
				return errors.New("nobody lets the job go on")
			}
		}
		h.passed = true
	}
	out.Collect(fmt.Sprintf("%s,%d", e.Key, e.N))
	return nil
}

func build(env *stream.Environment) error {
	f := flag.NewFlagSet("batch", flag.ContinueOnError)
	in := f.String("in", "", "folder of lines key,number")
	names := f.String("names", "", "another one, read by one task")
	to := f.String("out", "", "folder to write to")
	dir := f.String("marks", "", "folder for the marks")
	if err := f.Parse(env.Args()); err != nil {
		return err
	}
	env.SetRuntimeMode(stream.Batch)
	read := func(path, name string) stream.SingleOutputStreamOperator[entry] {
		src := env.FromSource(file.Source(serde.String(), file.Paths(path), file.SplitSize(1<<10)), stream.NoWatermarks[string](), name).UID(name)
		if name == "names" {
			src = src.SetParallelism(1)
		}
		out := src.Process(func() stream.ProcessFunction[string, entry] { return &parse{marks{dir: *dir, stage: name}} }).Name("parse " + name).UID("parse-" + name)
		if name == "names" {
			out = out.SetParallelism(1)
		}
		return out
	}
	wide, narrow := read(*in, "read"), read(*names, "names")
	wide.Union(narrow.DataStream).KeyBy(func(e entry) string { return e.Key }).
		Reduce(func(a, b entry) entry { return entry{a.Key, a.N + b.N} }).Name("sum").UID("sum").
		Process(func() stream.ProcessFunction[entry, string] { return &hold{marks: marks{dir: *dir, stage: "sum"}} }).Name("hold").UID("hold").
		Rebalance().SinkTo(file.Sink(serde.String(), file.Directory(*to))).Name("out").UID("out").SetParallelism(2)
	wide.GetSideOutput(rejected).SinkTo(file.Sink(serde.String(), file.Directory(*to+"/rejected"))).Name("rejected").UID("rejected").SetParallelism(1)
	return nil
}

func main() { stream.Main("batch", build) }
