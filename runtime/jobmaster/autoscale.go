package jobmaster

import (
	"context"
	"maps"
	"time"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/scheduler"
	"github.com/thalweg/thalweg/runtime/scheduler/autoscale"
)

// The load is looked at this often: a tenth of the window, between the interval of the workers' reports and lookMost.
const (
	lookLeast = time.Second
	lookMost  = 10 * time.Second
)

// pendingMetric is what sources count that know their backlog. Source: Flink FLIP-33.
const pendingMetric = "pendingRecords"

// autoscaling is the shell of autoscale.Autoscaler. It belongs to the loop.
type autoscaling struct {
	core    *autoscale.Autoscaler // nil when job.autoscaler.enabled is not set
	dry     bool
	last    []autoscale.Evaluation // nil as long as there is none for the present attempt
	decided graph.Parallelism      // told last
}

// startAutoscaler begins to watch the load.
func (j *JobMaster) startAutoscaler() {
	c := j.opts.Config
	if !config.Autoscaler.Value(c) || j.batch() {
		return
	}
	dry := !config.AutoscalerScaling.Value(c)
	if j.ckpt == nil {
		j.log.Warn().Msg("the autoscaler can only tell what it would do: the job takes no checkpoints (execution.checkpointing.dir)")
		dry = true
	}
	j.autoscaling = autoscaling{core: autoscale.New(autoscale.FromConfiguration(c)), dry: dry}
	j.lookAgain()
}

func (j *JobMaster) lookAgain() {
	j.after(min(max(config.AutoscalerWindow.Value(j.opts.Config)/10, lookLeast), lookMost), func() {
		j.look()
		j.lookAgain()
	})
}

// look feeds the autoscaler, and asks for what it decides.
func (j *JobMaster) look() {
	a := &j.autoscaling
	s, ok := j.sample()
	if !ok {
		a.last = nil
		return
	}
	r := a.core.Step(j.graph, s)
	a.last = r.Vertices
	if r.Parallelism == nil {
		a.decided = nil
		return
	}
	if j.sched.Pending() {
		return
	}
	if !maps.Equal(r.Parallelism, a.decided) {
		j.tellLoad(r)
		a.decided = r.Parallelism
	}
	if a.dry || maps.Equal(r.Parallelism, j.sched.Requirements().Upper()) {
		return
	}
	ch := make(chan error, 1)
	j.require(j.bounds(r.Parallelism), ch)
	j.beside(func(ctx context.Context) {
		select {
		case err := <-ch:
			if err != nil {
				j.log.Warn().Err(err).Msg("the autoscaler could not change the parallelism")
			}
		case <-ctx.Done():
		}
	})
}

// bounds are requirements for a parallelism that is as good as there are slots for: at least what there is now, or what is asked for.
func (j *JobMaster) bounds(p graph.Parallelism) scheduler.Requirements {
	out, now := scheduler.Requirements{}, j.sched.Requirements()
	for i := range j.graph.Vertices {
		v := &j.graph.Vertices[i]
		out[v.ID] = scheduler.Bounds{Lower: min(now[v.ID].Lower, v.Parallelism, p[v.ID]), Upper: p[v.ID]}
	}
	return out
}

// tellLoad logs a decision, for each vertex that it is about.
func (j *JobMaster) tellLoad(r autoscale.Result) {
	text := "the load asks for another parallelism"
	if j.autoscaling.dry {
		text = "the load would ask for another parallelism"
	}
	for i, e := range r.Vertices {
		v := &j.graph.Vertices[i]
		if n := r.Parallelism[v.ID]; n != e.Parallelism {
			j.log.Info().Str("vertex", v.Name).Int("from", e.Parallelism).Int("to", n).Float64("busy", e.Busy).Float64("records_per_second", e.Target).
				Float64("catch_up_per_second", e.CatchUp).Float64("capacity", e.Capacity).Int64("pending", e.Pending).Msg(text)
		}
	}
}

// sample is what the tasks have reported; false unless all of them run and have.
func (j *JobMaster) sample() (s autoscale.Sample, ok bool) {
	if !j.sched.Ready() {
		return s, false
	}
	s = autoscale.Sample{At: time.Now(), Attempt: j.sched.Attempt()}
	ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
	for _, v := range j.sched.Vertices() {
		tasks, pending := make([]autoscale.Task, len(v.Tasks)), int64(-1)
		for i, x := range v.Tasks {
			last := j.metrics.last[x.ID.String()]
			if last == nil || last.now == nil {
				return s, false
			}
			m := last.now
			tasks[i] = autoscale.Task{RecordsIn: m.GetRecordsIn(), RecordsOut: m.GetRecordsOut(), Busy: ms(m.GetBusyMs()), BackPressured: ms(m.GetBackpressuredMs())}
			for _, o := range m.GetMetrics() {
				if o.GetName() == pendingMetric {
					pending = max(pending, 0) + int64(o.GetValue())
				}
			}
		}
		s.Tasks, s.Pending = append(s.Tasks, tasks), append(s.Pending, pending)
	}
	return s, true
}
