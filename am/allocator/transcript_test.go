package allocator

import (
	"bufio"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/thalweg/thalweg/internal/transcript"
	"github.com/thalweg/thalweg/yarnrpc/yarn"
)

// A transcript is a list of commands; the output of each follows it, indented. Commands (time in seconds, names of containers are c<number>):
//
//	options rate=10 retry=3 inarow=3 register=300 recovery=5 preempt=15 bad=3 badfor=600
//	at 2.5                           the time of what follows
//	want small 3 | want big 1        small is 1024 MiB and 2 vcores, big 4096 MiB and 4 vcores
//	beat
//	answer [grant=c1,c2:p1[@host]] [done=c1:137:text] [preempt=c2] [node=host:leaving|leaving=60|back] [nodes=4] [room=1024]
//	                                 p1 is the priority; grants show one vcore whatever was asked, as the default calculator does
//	lost | resync | tick
//	recovered c1,c2:p1
//	started c1 | startfailed c1 text | registered c1 | release c1
func TestTranscripts(t *testing.T) { transcript.Run(t, play) }

type player struct {
	t  *testing.T
	a  *Allocator
	at time.Time
}

func play(t *testing.T, script string) string {
	p := &player{t: t, a: New(Options{}), at: time.Unix(0, 0)}
	var out strings.Builder
	sc := bufio.NewScanner(strings.NewReader(script))
	for sc.Scan() {
		line := sc.Text()
		if strings.HasPrefix(line, "  ") {
			continue // output of the last run
		}
		fmt.Fprintln(&out, line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		for _, e := range p.command(strings.Fields(line)) {
			fmt.Fprintf(&out, "  %s\n", p.show(e))
		}
		if n := p.a.Counts(); !strings.HasPrefix(line, "at ") && !strings.HasPrefix(line, "options") {
			fmt.Fprintf(&out, "  [wanted %d, open %d, starting %d, recovered %d, registered %d, releasing %d]\n", n.Wanted, n.Open, n.Starting, n.Recovered, n.Registered, n.Releasing)
		}
	}
	return out.String()
}

func (p *player) command(f []string) []Effect {
	rest := strings.Join(f[1:], " ")
	switch f[0] {
	case "options":
		v := map[string]float64{}
		for _, kv := range f[1:] {
			k, s, _ := strings.Cut(kv, "=")
			v[k], _ = strconv.ParseFloat(s, 64)
		}
		sec := func(k string) time.Duration { return time.Duration(v[k] * float64(time.Second)) }
		p.a = New(Options{FailureRate: v["rate"], RetryInterval: sec("retry"), MaxFailures: int(v["inarow"]), RegisterTimeout: sec("register"), RecoveryTimeout: sec("recovery"),
			PreemptAfter: sec("preempt"), ExcludeFailures: int(v["bad"]), ExcludeFor: sec("badfor")})
		return nil
	case "at":
		s, _ := strconv.ParseFloat(f[1], 64)
		p.at = time.Unix(0, 0).Add(time.Duration(s * float64(time.Second)))
		return nil
	case "want":
		n, _ := strconv.Atoi(f[2])
		return p.a.Step(Want{Spec: specOf(f[1]), Count: n})
	case "beat":
		return p.a.Step(Beat{At: p.at})
	case "answer":
		ev := Answer{At: p.at}
		for _, kv := range f[1:] {
			k, s, _ := strings.Cut(kv, "=")
			switch k {
			case "grant":
				ev.Granted = append(ev.Granted, grants(s)...)
			case "done":
				q := strings.SplitN(s, ":", 3)
				exit, _ := strconv.Atoi(q[1])
				st := Status{ID: id(q[0]), Exit: int32(exit)} //nolint:gosec // from the script
				if len(q) == 3 {
					st.Diagnostics = q[2]
				}
				ev.Completed = append(ev.Completed, st)
			case "preempt":
				ev.Preempted = append(ev.Preempted, id(s))
			case "node":
				host, what, _ := strings.Cut(s, ":")
				c := NodeChange{Node: yarn.NodeID{Host: host, Port: 1}, Leaving: strings.HasPrefix(what, "leaving")}
				if n, err := strconv.Atoi(strings.TrimPrefix(what, "leaving=")); err == nil {
					c.Until = p.at.Add(time.Duration(n) * time.Second)
				}
				ev.Nodes = append(ev.Nodes, c)
			case "nodes":
				ev.ClusterNodes, _ = strconv.Atoi(s)
			case "room":
				mb, _ := strconv.Atoi(s)
				ev.Headroom = yarn.Resource{MemoryMB: int64(mb), VCores: 100}
			}
		}
		return p.a.Step(ev)
	case "lost":
		return p.a.Step(AnswerLost{})
	case "resync":
		return p.a.Step(Resync{})
	case "tick":
		return p.a.Step(Tick{At: p.at})
	case "recovered":
		return p.a.Step(Recovered{At: p.at, Containers: grants(f[1])})
	case "started":
		return p.a.Step(Started{ID: id(f[1])})
	case "startfailed":
		_, reason, _ := strings.Cut(rest, " ")
		return p.a.Step(StartFailed{At: p.at, ID: id(f[1]), Reason: reason})
	case "registered":
		return p.a.Step(Registered{ID: id(f[1])})
	case "release":
		return p.a.Step(Release{At: p.at, ID: id(f[1])})
	}
	p.t.Fatalf("unknown command %q", f)
	return nil
}

func (p *player) show(e Effect) string {
	name := func(c Container) string { return fmt.Sprintf("c%d", c.ID.ID) }
	switch e := e.(type) {
	case Allocate:
		var parts []string
		for _, k := range e.Asks {
			parts = append(parts, fmt.Sprintf("ask p%d %s x%d", k.Priority, k.Spec.Resource, k.Count))
		}
		for _, r := range e.Releases {
			parts = append(parts, fmt.Sprintf("release c%d", r.ID))
		}
		for _, h := range e.Exclude {
			parts = append(parts, "exclude "+h)
		}
		for _, h := range e.Include {
			parts = append(parts, "include "+h)
		}
		if len(parts) == 0 {
			return "allocate nothing"
		}
		return "allocate " + strings.Join(parts, "; ")
	case Start:
		return fmt.Sprintf("start %s with %s", name(e.Container), e.Spec.Resource)
	case Stop:
		return "stop " + name(e.Container)
	case Ended:
		return fmt.Sprintf("ended registered=%v %s", e.Registered, strings.ReplaceAll(e.String(), e.Container.ID.String(), name(e.Container)))
	case Leaving:
		if e.Until.IsZero() {
			return fmt.Sprintf("leaving %s: %s", name(e.Container), e.Why)
		}
		return fmt.Sprintf("leaving %s at %s: %s", name(e.Container), seconds(e.Until), e.Why)
	case Staying:
		return "staying " + name(e.Container)
	case Excluded:
		return fmt.Sprintf("excluded %s until %s after %d failures", e.Host, seconds(e.Until), e.Failures)
	case Included:
		return fmt.Sprintf("included %s: %s", e.Host, e.Why)
	case BeatNow:
		return "beat now"
	case Paused:
		return fmt.Sprintf("paused until %s after %d failures", seconds(e.Until), e.Failures)
	case Failed:
		return fmt.Sprintf("FAILED after %d in a row: %s", e.Failures, strings.ReplaceAll(e.Last.String(), e.Last.Container.ID.String(), name(e.Last.Container)))
	}
	return fmt.Sprintf("%#v", e)
}

func seconds(t time.Time) string {
	return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'g', -1, 64)
}

func specOf(s string) Spec {
	if s == "big" {
		return Spec{Resource: yarn.Resource{MemoryMB: 4096, VCores: 4}}
	}
	return Spec{Resource: yarn.Resource{MemoryMB: 1024, VCores: 2}}
}

func id(s string) yarn.ContainerID {
	n, _ := strconv.ParseInt(strings.TrimPrefix(s, "c"), 10, 64)
	return yarn.ContainerID{Attempt: yarn.AttemptID{App: yarn.ApplicationID{ClusterTimestamp: 1, ID: 1}, Attempt: 1}, ID: n}
}

// grants parses "c1,c2:p1".
func grants(s string) []Container {
	names, prio, _ := strings.Cut(s, ":p")
	prio, host, _ := strings.Cut(prio, "@")
	if host == "" {
		host = "nm"
	}
	n, _ := strconv.Atoi(prio)
	var out []Container
	for _, c := range strings.Split(names, ",") {
		out = append(out, Container{ID: id(c), Node: yarn.NodeID{Host: host, Port: 1}, Priority: int32(n), RequestID: -1, Resource: yarn.Resource{MemoryMB: 1024, VCores: 1}}) //nolint:gosec // from the script
	}
	return out
}
