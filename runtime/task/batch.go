package task

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/internal/extsort"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/network"
	"github.com/thalweg/thalweg/runtime/operator"
	"github.com/thalweg/thalweg/runtime/rpc/pb"
)

// In BATCH a task runs when its inputs are complete. A keyed head gets its input sorted; outputs go to disk, and to their consumers when the
// task has finished. There are no barriers: at the end of its data, a task with a sink is told to prepare its commits, which the JobMaster
// keeps (Trigger, an acknowledgement), then to commit (CheckpointComplete), then to finish. A task that is started for the commits of an
// attempt before (Deployment.CommitOnly) does nothing else.

// sortedInput reads the inputs of a keyed operator. Keyed ones are gathered and sorted (operator.SortedReader); the others are broadcast:
// they go to the operator as they come, and so before any keyed record. Then the sorted ones are merged: the operator gets the records
// key by key, and is told when a key's are over.
type sortedInput struct {
	gateInput
	sorted  []operator.SortedReader
	merging bool
	key     []byte // of the records that the operator has got; nil before the first
}

func (i *sortedInput) step() (bool, error) {
	if i.merging {
		return i.merge()
	}
	return i.gateInput.step()
}

// sort follows the end of the last channel.
func (i *sortedInput) sort() error {
	for _, s := range i.sorted {
		if err := s.Sort(); err != nil {
			return err
		}
		if n := s.Spilled(); n > 0 {
			i.t.log.Debug().Int64("bytes", n).Msg("a keyed input was sorted on disk")
		}
	}
	i.merging = true
	return nil
}

// merge gives the operator a batch of records.
func (i *sortedInput) merge() (bool, error) {
	if i.t.endOfData {
		return false, nil
	}
	for range batch {
		var least operator.SortedReader
		var key, order []byte
		for _, s := range i.sorted {
			if k, o, ok := s.Current(); ok && (least == nil || bytes.Compare(o, order) < 0) {
				least, key, order = s, k, o
			}
		}
		if least == nil {
			return true, i.finish()
		}
		if i.key == nil || !bytes.Equal(i.key, key) {
			if err := i.endKey(); err != nil {
				return false, err
			}
			i.key = key
		}
		if err := least.Pass(); err != nil {
			return false, err
		}
	}
	return true, nil
}

func (i *sortedInput) endKey() error {
	if i.key == nil {
		return nil
	}
	return i.t.ctxs[0].EndKey(i.t.ops[0])
}

// finish follows the last record: the last watermark, then the end of the input.
func (i *sortedInput) finish() error {
	if err := i.endKey(); err != nil {
		return err
	}
	i.t.mute = false
	for _, s := range i.sorted {
		if err := errors.Join(s.Finish(), s.Close()); err != nil {
			return err
		}
	}
	return i.t.reachEnd()
}

func (i *sortedInput) close() {
	i.gateInput.close()
	for _, s := range i.sorted {
		if err := s.Close(); err != nil {
			i.t.log.Warn().Err(err).Msg("sorted input")
		}
	}
}

// sorts reports whether an edge into the head is sorted.
func (t *Task) sorts(e graph.Edge) bool {
	return t.d.Batch && t.d.Head.Node.Keyed && e.Partitioner == graph.Hash
}

// sortedReader makes the reader of a sorted input, with its share of the memory and a local folder.
func (t *Task) sortedReader(typ operator.Type, e graph.Edge, channels int) (operator.SortedReader, error) {
	dir, err := t.localDir(e.Input)
	if err != nil {
		return nil, err
	}
	inputs := map[int]bool{}
	for _, other := range t.d.Head.Node.In {
		if t.sorts(other) {
			inputs[other.Input] = true
		}
	}
	memory := int64(config.SortedMemory.Value(t.env.Config))
	if t.env.StateMemory > 0 {
		memory = min(memory, t.env.StateMemory)
	}
	return typ.SortedReader(t.ops[0].Input(e.Input), channels, e.Keyer, t.ctxs[0], extsort.Config{
		Dir: filepath.Join(dir, "sort", fmt.Sprintf("%s_%d", t.d.Execution, e.Input)), Memory: memory / int64(len(inputs)),
		Interrupt: func() error { return context.Cause(t.ctx) },
	})
}

// localDir is a folder for what the task writes to disk: another one for the next subtask, and for the next use.
func (t *Task) localDir(use int) (string, error) {
	if len(t.env.Dirs) == 0 {
		return "", errors.New("task: BATCH needs a local folder for what it writes to disk: set io.tmp.dirs")
	}
	return t.env.Dirs[(t.d.Subtask+use)%len(t.env.Dirs)], nil
}

// newPartition makes an output.
func (t *Task) newPartition(output, subpartitions int) (*network.Partition, error) {
	id := network.PartitionID{Producer: t.d.Execution, Output: output}
	if t.d.Vertex.Outputs[output].Exchange != graph.Blocking {
		if t.unaligned != nil {
			return t.env.Network.NewSoftPartition(t.ctx, id, subpartitions, t.unaligned.soft())
		}
		return t.env.Network.NewPartition(t.ctx, id, subpartitions)
	}
	dir, err := t.localDir(output)
	if err != nil {
		return nil, err
	}
	return t.env.Network.NewBlockingPartition(t.ctx, id, subpartitions, filepath.Join(dir, "exchange"))
}

// endAtOnce makes the task one that has only to finish: what there is to commit was committed when the operators were opened.
func (t *Task) endAtOnce() {
	t.endOfData = true
	t.report(endOfDataState, nil)
}

// nothing is the input of a task that has only commits to do.
type nothing struct{}

func (nothing) step() (bool, error)        { return false, nil }
func (nothing) available() <-chan struct{} { return nil }
func (nothing) records() int64             { return 0 }
func (nothing) watermark() int64           { return operator.MaxWatermark }
func (nothing) bytesIn() int64             { return 0 }
func (nothing) close()                     {}

// prepareCommits is what a Trigger means in BATCH: the sinks prepare their commits.
func (t *Task) prepareCommits(b operator.Barrier) error {
	if !t.endOfData {
		return fmt.Errorf("task: %s is to prepare its commits before the end of its input (a bug)", t.d.Vertex.Name)
	}
	parts := make([]operator.Snapshot, len(t.ops))
	for i, o := range t.ops {
		if s, ok := o.(operator.Committing); !ok || !s.Commits() {
			continue
		}
		s, err := o.Snapshot(b)
		if err != nil {
			return err
		}
		parts[i] = s
	}
	ack := &pb.CheckpointAck{ExecutionId: t.d.Execution.String(), CheckpointId: b.ID}
	t.write(b, parts, nil, ack)
	t.log.Debug().Dur("after", time.Since(t.metrics.started)).Msg("commits prepared")
	return nil
}
