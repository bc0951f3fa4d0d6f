package autoscale

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/internal/transcript"
	"github.com/thalweg/thalweg/runtime/graph"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func vertexID(n int) graph.VertexID { return graph.VertexID{ID: graph.ID{15: byte(n + 1)}} }

// Transcripts: the first line is the job, vertices with their parallelism, edges and configuration keys without "job.autoscaler.":
//
//	job src:2 map:4:16 src>map map=>sink sink:1 metrics.window=60s
//
// where => is a forward edge and map:4:16 has max parallelism 16. Lines that begin with ">" say what happened for a time, by vertex: records per second
// in and out, the share of time that each subtask was busy, and p=<pending records at the end>, b=<share of back pressure>:
//
//	> 60s src 1000 1000 0.5 p=0 | map 1000 0 0.9
//
// "> apply" makes the parallelism what was decided.
func TestTranscripts(t *testing.T) {
	transcript.Run(t, func(t *testing.T, script string) string { return play(t, script) })
}

type player struct {
	t       *testing.T
	a       *Autoscaler
	g       *graph.JobGraph
	at      time.Time
	s       Sample
	decided graph.Parallelism
}

func play(t *testing.T, script string) string {
	p := &player{t: t, at: time.Unix(0, 0)}
	var out bytes.Buffer
	for _, line := range strings.Split(strings.TrimRight(script, "\n"), "\n") {
		switch f := strings.Fields(line); {
		case strings.HasPrefix(line, "#") || line == "":
			fmt.Fprintln(&out, line)
		case f[0] == "job":
			fmt.Fprintln(&out, line)
			p.job(f[1:])
		case f[0] == ">":
			fmt.Fprintln(&out, line)
			if f[1] == "apply" {
				p.g = p.g.With(p.decided)
				p.s = p.empty(p.s.Attempt + 1)
				break
			}
			p.load(f[1:])
			r := p.a.Step(p.g, p.s)
			p.show(&out, r)
		}
	}
	return out.String()
}

func (p *player) num(s string) float64 {
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		p.t.Fatal(err)
	}
	return v
}

func (p *player) job(args []string) {
	p.g = &graph.JobGraph{}
	conf := config.Configuration{}
	at := map[string]int{}
	for _, a := range args {
		if k, v, ok := strings.Cut(a, "="); ok && !strings.Contains(a, ">") {
			conf["job.autoscaler."+k] = v
			continue
		}
		if from, to, ok := strings.Cut(a, ">"); ok {
			kind := graph.Hash
			if strings.HasSuffix(from, "=") {
				from, kind = strings.TrimSuffix(from, "="), graph.Forward
			}
			v := &p.g.Vertices[at[to]]
			v.Inputs = append(v.Inputs, graph.Input{From: vertexID(at[from]), Partitioner: kind})
			continue
		}
		f := strings.Split(a, ":")
		v := graph.Vertex{ID: vertexID(len(p.g.Vertices)), Name: f[0], Parallelism: int(p.num(f[1])), MaxParallelism: 128}
		if len(f) > 2 {
			v.MaxParallelism = int(p.num(f[2]))
		}
		at[f[0]] = len(p.g.Vertices)
		p.g.Vertices = append(p.g.Vertices, v)
	}
	p.a = New(FromConfiguration(conf))
	p.s = p.empty(0)
}

func (p *player) empty(attempt int) Sample {
	s := Sample{At: p.at, Attempt: attempt}
	for _, v := range p.g.Vertices {
		s.Tasks = append(s.Tasks, make([]Task, v.Parallelism))
		s.Pending = append(s.Pending, -1)
	}
	return s
}

// load adds what happened for a while.
func (p *player) load(words []string) {
	d, err := time.ParseDuration(words[0])
	if err != nil {
		p.t.Fatal(err)
	}
	p.at = p.at.Add(d)
	next := p.empty(p.s.Attempt)
	next.At = p.at
	for v := range next.Tasks {
		copy(next.Tasks[v], p.s.Tasks[v])
		next.Pending[v] = p.s.Pending[v]
	}
	for part := range strings.SplitSeq(strings.Join(words[1:], " "), "|") {
		f := strings.Fields(part)
		if len(f) == 0 {
			continue
		}
		v := 0
		for p.g.Vertices[v].Name != f[0] {
			v++
		}
		in, out, busy, held := p.num(f[1]), p.num(f[2]), p.num(f[3]), 0.0
		for _, w := range f[4:] {
			switch k, val, _ := strings.Cut(w, "="); k {
			case "p":
				next.Pending[v] = int64(p.num(val))
			case "b":
				held = p.num(val)
			}
		}
		n := float64(len(next.Tasks[v]))
		for i := range next.Tasks[v] {
			x := &next.Tasks[v][i]
			x.RecordsIn += int64(in * d.Seconds() / n)
			x.RecordsOut += int64(out * d.Seconds() / n)
			x.Busy += time.Duration(busy * float64(d))
			x.BackPressured += time.Duration(held * float64(d))
		}
	}
	p.s = next
}

func (p *player) show(out *bytes.Buffer, r Result) {
	for v, e := range r.Vertices {
		fmt.Fprintf(out, "  %s x%d: busy %.2f, capacity %.0f, target %.0f, catch-up %.1f, up below %.0f, down above %.0f: x%d\n", p.g.Vertices[v].Name, e.Parallelism, e.Busy, e.Capacity,
			e.Target, e.CatchUp, e.UpBelow, e.DownAbove, e.Recommended)
	}
	if r.Parallelism != nil {
		p.decided = r.Parallelism
		var parts []string
		for i := range p.g.Vertices {
			parts = append(parts, fmt.Sprintf("%s x%d", p.g.Vertices[i].Name, r.Parallelism[p.g.Vertices[i].ID]))
		}
		fmt.Fprintf(out, "  change to %s\n", strings.Join(parts, ", "))
	}
}

// pipeline is a simulated job: source, two operators behind it, each with what one subtask can process in a second.
type pipeline struct {
	each    []float64 // records per second and subtask
	ratio   []float64 // records out for each one in
	load    float64   // records per second that come to the source
	backlog float64
	known   bool // the backlog is reported
}

// tick is a step of the simulation, in seconds.
const tick = 10

// run lets the job work for a tick with this parallelism and adds to the sample.
func (l *pipeline) run(g *graph.JobGraph, s *Sample) {
	l.backlog += l.load * tick
	rate := l.backlog / tick // what the source could read, bounded by every operator behind it
	factor := 1.0
	for v := range g.Vertices {
		rate = min(rate, float64(g.Vertices[v].Parallelism)*l.each[v]/factor)
		factor *= l.ratio[v]
	}
	l.backlog -= rate * tick
	factor = 1.0
	for v := range g.Vertices {
		n := float64(g.Vertices[v].Parallelism)
		in := rate * factor
		factor *= l.ratio[v]
		busy := min(1, in/(n*l.each[v]))
		held := 0.0
		if l.backlog > 1 {
			held = 1 - busy // it could read more, and may not
		}
		for i := range s.Tasks[v] {
			x := &s.Tasks[v][i]
			x.RecordsIn += int64(in / n * 1000 * tick)
			x.RecordsOut += int64(in / n * l.ratio[v] * 1000 * tick)
			x.Busy += time.Duration(busy * tick * float64(time.Second))
			if v == 0 {
				x.BackPressured += time.Duration(held * tick * float64(time.Second))
			}
		}
	}
	s.Pending[0] = -1
	if l.known {
		s.Pending[0] = int64(l.backlog * 1000)
	}
}

// Whatever a job's operators can do and whatever load comes, in the end none of them is busier than it may be, the backlog is gone, nothing changes
// any more, and no subtask is there without need; it took few changes.
func TestTheParallelismFollowsTheLoad(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		g := &graph.JobGraph{}
		l := &pipeline{known: rapid.Bool().Draw(rt, "backlog is known")}
		for v := range 3 {
			x := graph.Vertex{ID: vertexID(v), Parallelism: rapid.IntRange(1, 20).Draw(rt, "parallelism"), MaxParallelism: 2000}
			if v > 0 {
				x.Inputs = []graph.Input{{From: vertexID(v - 1), Partitioner: graph.Hash}}
			}
			g.Vertices = append(g.Vertices, x)
			l.each = append(l.each, rapid.Float64Range(20, 500).Draw(rt, "each"))
			l.ratio = append(l.ratio, rapid.Float64Range(0.2, 2).Draw(rt, "ratio"))
		}
		a := New(Config{Target: 0.7, Max: 0.95, Min: 0.4, CatchUp: 10 * time.Minute, Restart: 5 * time.Second, Stabilization: 30 * time.Second, Window: time.Minute,
			ScaleDown: 2 * time.Minute, UpFactor: 1e5, DownFactor: 0.6, MinParallelism: 1, MaxParallelism: 2000})
		at := time.Unix(0, 0)
		var s Sample
		fresh := func() {
			n := Sample{Attempt: s.Attempt + 1, Pending: make([]int64, 3)}
			for _, v := range g.Vertices {
				n.Tasks = append(n.Tasks, make([]Task, v.Parallelism))
			}
			s = n
		}
		fresh()
		for range rapid.IntRange(1, 3).Draw(rt, "phases") {
			l.load = rapid.Float64Range(10, 1000).Draw(rt, "load")
			changes, last := 0, at
			var seen Result
			for range 3 * 3600 / tick {
				at = at.Add(tick * time.Second)
				l.run(g, &s)
				s.At = at
				c := s
				c.Tasks = make([][]Task, 3)
				for v := range c.Tasks {
					c.Tasks[v] = append([]Task(nil), s.Tasks[v]...)
				}
				c.Pending = append([]int64(nil), s.Pending...)
				r := a.Step(g, c)
				if r.Vertices != nil {
					seen = r
				}
				if r.Parallelism == nil {
					continue
				}
				changes++
				last = at
				g = g.With(r.Parallelism)
				l.backlog += 5 * l.load // a restart
				fresh()
			}
			most := 12
			if !l.known { // a source that is busy all the time grows by what it could be less busy
				most = 24
			}
			if changes > most || at.Sub(last) < time.Hour {
				rt.Fatalf("%d changes, the last %s before the end; %+v", changes, at.Sub(last), seen.Vertices)
			}
			if l.backlog > 2*l.load {
				rt.Fatalf("a backlog of %.0f records is left, at %.0f a second; %+v", l.backlog, l.load, seen.Vertices)
			}
			in := l.load
			for v := range g.Vertices {
				n := float64(g.Vertices[v].Parallelism)
				if busy := in / (n * l.each[v]); busy > 0.96 || n > 1 && in/((n-1)*l.each[v]) < 0.39 {
					rt.Fatalf("vertex %d has %v subtasks, busy %.2f; %+v", v, n, busy, seen.Vertices)
				}
				in *= l.ratio[v]
			}
		}
	})
}

// What is out of the ordinary is no reason to do anything.
func TestNothingIsDecidedWithoutData(t *testing.T) {
	g := &graph.JobGraph{Vertices: []graph.Vertex{{ID: vertexID(0), Parallelism: 2, MaxParallelism: 128}}}
	a := New(FromConfiguration(config.Configuration{"job.autoscaler.stabilization.interval": "0", "job.autoscaler.metrics.window": "10 s"}))
	for i := range 100 { // no records, no time
		r := a.Step(g, Sample{At: time.Unix(int64(i), 0), Tasks: [][]Task{make([]Task, 2)}, Pending: []int64{-1}})
		if r.Parallelism != nil || r.Vertices != nil && !math.IsNaN(r.Vertices[0].Capacity) {
			t.Fatalf("%+v", r)
		}
	}
	if r := a.Step(g, Sample{At: time.Unix(200, 0)}); r.Vertices != nil || r.Parallelism != nil {
		t.Fatalf("of a sample without tasks: %+v", r)
	}
}
