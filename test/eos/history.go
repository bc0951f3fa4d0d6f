package eos

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"
)

// Kind tells the events of a history apart.
type Kind string

const (
	KindSpec       Kind = "spec"       // what was generated
	KindRun        Kind = "run"        // parameters of the run: prefix, parallelism, pool
	KindIn         Kind = "in"         // a record of the input topic
	KindOut        Kind = "out"        // a record that a read_committed reader found after the job's end
	KindLive       Kind = "live"       // a record that a read_committed reader saw while the job ran, in the order it saw them
	KindRaw        Kind = "raw"        // a record of the output topic's log, whatever became of its transaction
	KindMarker     Kind = "marker"     // a control record of the output topic's log
	KindEnd        Kind = "end"        // a partition of the output topic at the end: high watermark, last stable offset
	KindTxn        Kind = "txn"        // a transactional id at the end
	KindDead       Kind = "dead"       // a dead letter; partition and offset are those of the input record that it is about
	KindGroup      Kind = "group"      // a committed group offset, at a time
	KindCheckpoint Kind = "checkpoint" // a completed checkpoint with the input's offsets; At is not after its completion was told to anyone
	KindOperator   Kind = "operator"   // an operator's counts, or those of the way between two (then In was sent and Out arrived)
	KindFault      Kind = "fault"      // something that was done to the job; for the reader of the history
	KindNote       Kind = "note"
)

// Event is a line of a history. Which fields matter depends on the kind.
type Event struct {
	Kind      Kind      `json:"kind"`
	At        time.Time `json:"at,omitzero"`
	Partition int32     `json:"p"`
	Offset    int64     `json:"o"`
	Key       string    `json:"k,omitempty"`
	Value     string    `json:"v,omitempty"`

	ProducerID int64 `json:"pid,omitempty"`
	Epoch      int16 `json:"epoch,omitempty"`
	InTxn      bool  `json:"in_txn,omitempty"`
	Commit     bool  `json:"commit,omitempty"`

	Stable   int64  `json:"stable,omitempty"`    // end: last stable offset; Offset is the high watermark
	WaitedMS int64  `json:"waited_ms,omitempty"` // end: how long after the job's end
	ID       string `json:"id,omitempty"`        // txn: transactional id
	State    string `json:"state,omitempty"`

	Checkpoint int64           `json:"checkpoint,omitempty"`
	Offsets    map[int32]int64 `json:"offsets,omitempty"`

	In       int64 `json:"in,omitempty"`
	Out      int64 `json:"out,omitempty"`
	Late     int64 `json:"late,omitempty"`
	Filtered int64 `json:"filtered,omitempty"`

	Spec        *Spec  `json:"spec,omitempty"`
	Prefix      string `json:"prefix,omitempty"`
	Parallelism int    `json:"parallelism,omitempty"`
	Pool        int    `json:"pool,omitempty"`
	Text        string `json:"text,omitempty"`
}

// History is what happened in a run.
type History struct{ Events []Event }

// Add adds events.
func (h *History) Add(ev ...Event) { h.Events = append(h.Events, ev...) }

// Of returns the events of a kind, in order.
func (h *History) Of(k Kind) []Event {
	var out []Event
	for _, e := range h.Events {
		if e.Kind == k {
			out = append(out, e)
		}
	}
	return out
}

// Has reports whether there is an event of a kind.
func (h *History) Has(k Kind) bool {
	for _, e := range h.Events {
		if e.Kind == k {
			return true
		}
	}
	return false
}

// Write writes the history as JSON lines.
func (h *History) Write(w io.Writer) error {
	bw := bufio.NewWriterSize(w, 1<<20)
	enc := json.NewEncoder(bw)
	for i := range h.Events {
		if err := enc.Encode(&h.Events[i]); err != nil {
			return fmt.Errorf("eos: write history: %w", err)
		}
	}
	if err := bw.Flush(); err != nil {
		return fmt.Errorf("eos: write history: %w", err)
	}
	return nil
}

// AppendFile appends the history to a file.
func (h *History) AppendFile(path string) (err error) {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("eos: open history: %w", err)
	}
	defer func() {
		if cerr := f.Close(); err == nil && cerr != nil {
			err = fmt.Errorf("eos: close history: %w", cerr)
		}
	}()
	return h.Write(f)
}

// ReadHistory reads JSON lines.
func ReadHistory(r io.Reader) (*History, error) {
	h := &History{}
	dec := json.NewDecoder(bufio.NewReaderSize(r, 1<<20))
	for {
		var e Event
		err := dec.Decode(&e)
		if err == io.EOF {
			return h, nil
		}
		if err != nil {
			return nil, fmt.Errorf("eos: read history, event %d: %w", len(h.Events)+1, err)
		}
		h.Events = append(h.Events, e)
	}
}

// ReadHistoryFiles reads and joins files.
func ReadHistoryFiles(paths ...string) (*History, error) {
	all := &History{}
	for _, p := range paths {
		f, err := os.Open(p)
		if err != nil {
			return nil, fmt.Errorf("eos: open history: %w", err)
		}
		h, err := ReadHistory(f)
		_ = f.Close()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p, err)
		}
		all.Add(h.Events...)
	}
	return all, nil
}
