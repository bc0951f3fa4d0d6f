package faults

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	iofs "io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/test/eos"
	"github.com/thalweg/thalweg/test/rig"
	"github.com/thalweg/thalweg/test/rig/rigtest"
)

// retained is how many checkpoints the job keeps: each is there for as many seconds, so that none is missed while the NameNode is busy.
const retained = 20

// checkpoints follows the job's checkpoints while it runs: their metadata files say what they hold of the input, whatever processes die.
type checkpoints struct {
	fs     fs.FileSystem
	logout func() error // closes fs
	dir    string       // of the present job's checkpoints
	saves  string       // of savepoints, may not be there
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu   sync.Mutex
	dirs []string             // of all jobs of the run, one after another
	seen map[string]eos.Event // by directory
	err  error
}

// follow follows the checkpoint directory (a URI) of another job too, which goes on where the last one stopped.
func (w *checkpoints) follow(dir string) error {
	u, err := fs.Parse(dir)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dir = u.Path
	w.dirs = append(w.dirs, u.Path)
	return nil
}

// folders are the directories to look at.
func (w *checkpoints) folders() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := slices.Clone(w.dirs)
	if w.saves != "" {
		all = append(all, w.saves)
	}
	return all
}

// lookEvery is how often the folders are listed. What is completed right before a stop with a savepoint is removed with the job, some 0.3 s later.
const lookEvery = 100 * time.Millisecond

// watchPatience is how long HDFS may be away.
const watchPatience = 90 * time.Second

// watchCheckpoints follows dir, the job's checkpoint directory, and saves, that of its savepoints, as URIs; saves may be empty.
func watchCheckpoints(ctx context.Context, c *rig.Cluster, dir, saves string) (*checkpoints, error) {
	u, err := fs.Parse(dir)
	if err != nil || u.Scheme != "hdfs" {
		return nil, fmt.Errorf("faults: checkpoint directory %q is not on HDFS: %w", dir, err)
	}
	f, logout, err := rigtest.Open(ctx, c)
	if err != nil {
		return nil, err
	}
	w := &checkpoints{fs: f, logout: logout, dir: u.Path, dirs: []string{u.Path}, seen: map[string]eos.Event{}}
	if saves != "" {
		su, err := fs.Parse(saves)
		if err != nil {
			return nil, err
		}
		w.saves = su.Path
	}
	ctx, w.cancel = context.WithCancel(ctx)
	w.wg.Go(func() {
		tick := time.NewTicker(lookEvery)
		defer tick.Stop()
		well := time.Now()
		for {
			var err error
			for _, d := range w.folders() {
				err = errors.Join(err, w.look(ctx, d))
			}
			switch {
			case err == nil:
				well = time.Now()
			case ctx.Err() == nil && time.Since(well) > watchPatience:
				w.mu.Lock()
				w.err = errors.Join(w.err, err)
				w.mu.Unlock()
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	})
	return w, nil
}

// look reads the metadata files that are new in dir.
func (w *checkpoints) look(ctx context.Context, dir string) error {
	dirs, err := w.fs.List(ctx, dir)
	if errors.Is(err, iofs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, d := range dirs {
		file := path.Join(d.Path, "_metadata")
		w.mu.Lock()
		_, known := w.seen[file]
		w.mu.Unlock()
		if base := path.Base(d.Path); known || !d.IsDir || !strings.HasPrefix(base, "chk-") && !strings.HasPrefix(base, "savepoint-") {
			continue
		}
		info, err := w.fs.Stat(ctx, file)
		var b []byte
		if err == nil {
			b, err = fs.ReadFile(ctx, w.fs, file, 64<<20)
		}
		if errors.Is(err, iofs.ErrNotExist) {
			continue // not complete yet, or no longer kept
		}
		if err != nil {
			return err
		}
		e, err := checkpointEvent(b, info.ModTime)
		if err != nil {
			return fmt.Errorf("faults: %s: %w", file, err)
		}
		w.mu.Lock()
		w.seen[file] = e
		w.mu.Unlock()
	}
	return nil
}

// checkpointEvent takes the offsets of the Kafka source from a metadata file. (A split's state: see connector/kafka, split.go.)
func checkpointEvent(b []byte, at time.Time) (eos.Event, error) {
	cp, err := metadata.Decode(b, "")
	if err != nil {
		return eos.Event{}, err
	}
	e := eos.Event{Kind: eos.KindCheckpoint, At: at.UTC(), Checkpoint: cp.ID, Offsets: map[int32]int64{}}
	for _, op := range cp.Operators {
		for _, sub := range op.Subtasks {
			for _, l := range sub.Lists {
				if l.Name != "source-splits" {
					continue
				}
				for _, item := range l.Items {
					var s connector.Split
					if err := json.Unmarshal(item, &s); err != nil || len(s.State) < 34 || s.State[0] != 1 {
						return e, fmt.Errorf("split %q is none of Kafka's: %w", item, err)
					}
					e.Offsets[int32(binary.BigEndian.Uint32(s.State[18:]))] = int64(binary.BigEndian.Uint64(s.State[26:]))
				}
			}
		}
	}
	return e, nil
}

// offsets are those of a completed checkpoint.
func (w *checkpoints) offsets(id int64) (map[int32]int64, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.seen {
		if e.Checkpoint == id {
			return e.Offsets, true
		}
	}
	return nil, false
}

// stop ends the watch and returns the checkpoints that completed.
func (w *checkpoints) stop() ([]eos.Event, error) {
	w.cancel()
	w.wg.Wait()
	err := w.logout()
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make([]eos.Event, 0, len(w.seen))
	for _, e := range w.seen {
		out = append(out, e)
	}
	return out, errors.Join(w.err, err)
}

// counts are what the job's metrics say: of the present attempt of each task, so since the restored checkpoint.
type counts struct {
	sourceOut, windowIn, late, filtered int64
}

// counts reads the metrics at the REST interface, as Prometheus would.
func (j *job) counts(ctx context.Context, source, window string) (counts, error) {
	text, err := j.text(ctx, "/metrics")
	if err != nil {
		return counts{}, err
	}
	var c counts
	found := map[string]bool{}
	for line := range strings.Lines(text) {
		name, rest, ok := strings.Cut(line, "{")
		labels, value, ok2 := strings.Cut(rest, "} ")
		if !ok || !ok2 {
			continue
		}
		f, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		if err != nil {
			return c, fmt.Errorf("faults: metrics: %q: %w", line, err)
		}
		of := func(task string) bool { return strings.Contains(labels, `task_name="`+task+`"`) }
		name = strings.TrimPrefix(strings.TrimPrefix(name, "flink_taskmanager_job_task_"), "operator_")
		var to *int64
		switch {
		case name == "numRecordsOut" && of(source):
			to = &c.sourceOut
		case name == "numRecordsIn" && of(window):
			to = &c.windowIn
		case name == "numLateRecordsDropped":
			to = &c.late
		case name == "numRecordsDeadLettered", name == "numRecordsSkipped":
			to = &c.filtered
		default:
			continue
		}
		found[name] = true
		*to += int64(f)
	}
	for _, n := range []string{"numRecordsOut", "numRecordsIn", "numLateRecordsDropped", "numRecordsDeadLettered"} {
		if !found[n] {
			return c, fmt.Errorf("faults: /metrics has no %s", n)
		}
	}
	return c, nil
}

// operators compares what the operators counted with the input that was to be read since the restored checkpoint. It waits for the counts
// to be reported; what does not balance in the end is for the judge to say.
func (r *run) operators(ctx context.Context, ends map[int32]int64) ([]eos.Event, error) {
	s, err := answered(ctx, "the job's state", r.job.state)
	if err != nil {
		return nil, err
	}
	if len(s.Vertices) != 2 {
		return nil, fmt.Errorf("faults: the job has %d vertices, want the source and the windows", len(s.Vertices))
	}
	id, err := answered(ctx, "the restored checkpoint", r.job.restored)
	if err != nil {
		return nil, err
	}
	from := map[int32]int64{}
	if id > 0 {
		var ok bool
		if from, ok = r.checkpoints.offsets(id); !ok {
			return nil, fmt.Errorf("faults: the job was restored from checkpoint %d, whose metadata was never seen", id)
		}
	}
	var in int64
	for p, end := range ends {
		in += end - from[p]
	}
	var c counts
	err = until(ctx, 90*time.Second, "balanced counts", func(ctx context.Context) (bool, error) {
		var err error
		c, err = r.job.counts(ctx, s.Vertices[0].Name, s.Vertices[1].Name)
		return err == nil && in == c.sourceOut+c.filtered && c.sourceOut == c.windowIn, err
	})
	if err != nil {
		r.logf("%v: %d records in since checkpoint %d, counts %+v", err, in, id, c)
		if c == (counts{}) {
			return nil, err
		}
	}
	r.logf("since checkpoint %d: %d records in, %d out of the source and %d put aside, %d into the windows, %d late", id, in, c.sourceOut, c.filtered, c.windowIn, c.late)
	return []eos.Event{
		{Kind: eos.KindOperator, ID: s.Vertices[0].Name, In: in, Out: c.sourceOut, Filtered: c.filtered},
		{Kind: eos.KindOperator, ID: "from " + s.Vertices[0].Name + " to " + s.Vertices[1].Name, In: c.sourceOut, Out: c.windowIn},
		{Kind: eos.KindOperator, ID: s.Vertices[1].Name, In: c.windowIn, Out: c.windowIn - c.late, Late: c.late},
	}, nil
}

// restored is the number of the checkpoint that the present attempt was restored from, 0 when there is none.
func (j *job) restored(ctx context.Context) (int64, error) {
	var r struct {
		Latest struct {
			Restored *struct {
				ID int64 `json:"id"`
			} `json:"restored"`
		} `json:"latest"`
	}
	if err := j.get(ctx, "/jobs/"+j.id+"/checkpoints", &r); err != nil || r.Latest.Restored == nil {
		return 0, err
	}
	return r.Latest.Restored.ID, nil
}

// checkpointDir is the URI of the folder with the job's checkpoints.
func (j *job) checkpointDir(ctx context.Context) (string, error) {
	var r struct {
		Dir string `json:"checkpoint_directory"`
	}
	err := j.get(ctx, "/jobs/"+j.id+"/checkpoints/config", &r)
	if err == nil && r.Dir == "" {
		err = errors.New("faults: REST does not say where the checkpoints are")
	}
	return r.Dir, err
}
