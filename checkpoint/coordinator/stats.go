package coordinator

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/thalweg/thalweg/runtime/graph"
)

// Status of a checkpoint in the statistics, in Flink's words.
type Status string

const (
	InProgress      Status = "IN_PROGRESS"
	StatusCompleted Status = "COMPLETED"
	StatusFailed    Status = "FAILED"
)

// Stats is what REST shows about a job's checkpoints (/jobs/:jobid/checkpoints). Values belong to the caller.
type Stats struct {
	Counts  Counts
	Summary Summary
	Latest  Latest
	History []Details // newest first, those in progress included
}

// Counts are totals since this application attempt took the job.
type Counts struct{ Restored, Total, InProgress, Completed, Failed int }

// Summary is over completed checkpoints, the last 10,000.
type Summary struct {
	Duration         Distribution // milliseconds, end to end
	StateSize        Distribution // bytes
	CheckpointedSize Distribution // bytes written for the checkpoint
	Processed        Distribution // bytes, see TaskStats
	Persisted        Distribution // bytes, see TaskStats
}

// Distribution describes a set of numbers; all zero when it is empty.
type Distribution struct {
	Min, Max, Avg            int64
	P50, P90, P95, P99, P999 float64
}

// Latest are the last checkpoints of each sort, nil for none.
type Latest struct {
	Completed, Failed, Savepoint *Details
	Restored                     *Restored
}

// Restored is the checkpoint that the job was restored from last.
type Restored struct {
	ID        int64
	Time      time.Time
	Savepoint bool
	Dir       string
}

// Details is one checkpoint.
type Details struct {
	ID               int64
	Status           Status
	Kind             Kind
	Trigger          time.Time
	LatestAck        time.Time
	End              time.Time // zero while in progress
	StateSize        int64
	CheckpointedSize int64
	MetadataSize     int64
	Processed        int64 // bytes, see TaskStats
	Persisted        int64
	Subtasks         int
	AckedSubtasks    int
	Dir              string // URI, of completed ones
	Discarded        bool
	Failure          string
	Vertices         map[graph.VertexID]*VertexDetails
}

// Duration is from the trigger to the end, to the latest acknowledgement while in progress.
func (d *Details) Duration() time.Duration {
	switch {
	case !d.End.IsZero():
		return d.End.Sub(d.Trigger)
	case !d.LatestAck.IsZero():
		return d.LatestAck.Sub(d.Trigger)
	}
	return 0
}

// Savepoint reports whether it belongs to the user.
func (d *Details) Savepoint() bool { return d.Kind == Savepoint || d.Kind == StopWithSavepoint }

// VertexDetails is one vertex's part. Subtasks is by subtask index; those that have not acknowledged have a zero Ack.
type VertexDetails struct {
	Subtasks []SubtaskDetails
}

// SubtaskDetails is one subtask's part.
type SubtaskDetails struct {
	Ack time.Time
	TaskStats
}

// statistics collects; the coordinator owns it.
type statistics struct {
	limit   int
	counts  Counts
	history []*Details // oldest first
	latest  Latest

	duration, size, written, processed, persisted []int64
}

const summaryWindow = 10000

func (s *statistics) begin(p *pending) *Details {
	d := &Details{ID: p.id, Status: InProgress, Kind: p.kind, Trigger: p.trigger, Subtasks: len(p.tasks),
		Vertices: map[graph.VertexID]*VertexDetails{}}
	for _, t := range p.tasks {
		v := d.Vertices[t.Execution.Vertex]
		if v == nil {
			v = &VertexDetails{}
			d.Vertices[t.Execution.Vertex] = v
		}
		for len(v.Subtasks) <= t.Execution.Subtask {
			v.Subtasks = append(v.Subtasks, SubtaskDetails{})
		}
	}
	s.counts.Total++
	s.counts.InProgress++
	s.history = append(s.history, d)
	if len(s.history) > s.limit {
		if i := slices.IndexFunc(s.history, func(d *Details) bool { return d.Status != InProgress }); i >= 0 {
			s.history = slices.Delete(s.history, i, i+1)
		}
	}
	return d
}

func (d *Details) ack(ev Ack, at time.Time) {
	d.AckedSubtasks++
	d.LatestAck = at
	d.StateSize += ev.Stats.Size
	d.CheckpointedSize += ev.Stats.New
	d.Processed += ev.Stats.Processed
	d.Persisted += ev.Stats.Persisted
	if v := d.Vertices[ev.Execution.Vertex]; v != nil && ev.Execution.Subtask < len(v.Subtasks) {
		v.Subtasks[ev.Execution.Subtask] = SubtaskDetails{Ack: at, TaskStats: ev.Stats}
	}
}

func (s *statistics) complete(d *Details, at time.Time, dir string) {
	d.Status, d.End, d.Dir = StatusCompleted, at, dir
	s.counts.InProgress--
	s.counts.Completed++
	if d.Savepoint() {
		s.latest.Savepoint = d
	} else {
		s.latest.Completed = d
	}
	keep := func(w *[]int64, v int64) {
		if *w = append(*w, v); len(*w) > summaryWindow {
			*w = slices.Delete(*w, 0, 1)
		}
	}
	keep(&s.duration, d.Duration().Milliseconds())
	keep(&s.size, d.StateSize)
	keep(&s.written, d.CheckpointedSize)
	keep(&s.processed, d.Processed)
	keep(&s.persisted, d.Persisted)
}

func (s *statistics) fail(d *Details, at time.Time, err error) {
	d.Status, d.End, d.Failure = StatusFailed, at, err.Error()
	s.counts.InProgress--
	s.counts.Failed++
	s.latest.Failed = d
}

func (s *statistics) restored(id int64, dir string, savepoint bool, at time.Time) {
	s.counts.Restored++
	s.latest.Restored = &Restored{ID: id, Time: at, Savepoint: savepoint, Dir: dir}
}

// adopted notes a restore that an earlier JobMaster did and counted, at the time from which on it is known here. Where the checkpoint was is not known
// any more when it is not kept.
func (s *statistics) adopted(id int64, kept []*Completed, at time.Time) {
	s.latest.Restored = &Restored{ID: id, Time: at}
	for _, r := range kept {
		if r.ID == id {
			s.latest.Restored.Savepoint, s.latest.Restored.Dir = r.savepoint(), r.Dir
		}
	}
}

func (s *statistics) discarded(id int64) {
	for _, d := range s.history {
		if d.ID == id {
			d.Discarded = true
		}
	}
	if s.latest.Completed != nil && s.latest.Completed.ID == id {
		s.latest.Completed.Discarded = true
	}
}

func (s *statistics) snapshot() Stats {
	out := Stats{Counts: s.counts, Latest: s.latest,
		Summary: Summary{Duration: distribution(s.duration), StateSize: distribution(s.size), CheckpointedSize: distribution(s.written),
			Processed: distribution(s.processed), Persisted: distribution(s.persisted)}}
	for _, d := range slices.Backward(s.history) {
		out.History = append(out.History, *d.clone())
	}
	out.Latest.Completed, out.Latest.Failed, out.Latest.Savepoint = s.latest.Completed.clone(), s.latest.Failed.clone(), s.latest.Savepoint.clone()
	if s.latest.Restored != nil {
		r := *s.latest.Restored
		out.Latest.Restored = &r
	}
	return out
}

func (d *Details) clone() *Details {
	if d == nil {
		return nil
	}
	c := *d
	c.Vertices = maps.Clone(d.Vertices)
	for k, v := range c.Vertices {
		c.Vertices[k] = &VertexDetails{Subtasks: slices.Clone(v.Subtasks)}
	}
	return &c
}

func distribution(values []int64) Distribution {
	if len(values) == 0 {
		return Distribution{}
	}
	v := slices.Clone(values)
	slices.Sort(v)
	var sum float64
	for _, x := range v {
		sum += float64(x)
	}
	q := func(p float64) float64 {
		i := p * float64(len(v)-1)
		lo := int(math.Floor(i))
		hi := min(lo+1, len(v)-1)
		return float64(v[lo]) + (i-float64(lo))*float64(v[hi]-v[lo])
	}
	return Distribution{Min: v[0], Max: v[len(v)-1], Avg: int64(sum / float64(len(v))), P50: q(.5), P90: q(.9), P95: q(.95), P99: q(.99), P999: q(.999)}
}
