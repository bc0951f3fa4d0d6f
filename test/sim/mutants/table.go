package main

const (
	acknowledge  = "checkpoint/coordinator/acknowledge.go"
	complete     = "checkpoint/coordinator/complete.go"
	coordinator  = "checkpoint/coordinator/coordinator.go"
	trigger      = "checkpoint/coordinator/trigger.go"
	control      = "runtime/task/barrier/control.go"
	aligner      = "runtime/task/barrier/barrier.go"
	sink         = "runtime/operator/sink.go"
	source       = "runtime/operator/source.go"
	redistribute = "checkpoint/metadata/redistribute.go"
	token        = "runtime/ha/token.go"
	sched        = "runtime/scheduler/scheduler.go"
	failure      = "runtime/scheduler/failure.go"
	metadata     = "checkpoint/storage/metadata.go"
	enumerator   = "connector/kafka/enumerator/enumerator.go"
	process      = "runtime/operator/process.go"
	sweep        = "checkpoint/storage/sweep.go"
	lent         = "checkpoint/coordinator/lent.go"
	exchanges    = "checkpoint/coordinator/exchanges.go"
	exchange     = "checkpoint/savepoint/exchange.go"
	increment    = "state/increment/increment.go"
	overtake     = "runtime/network/overtake.go"
	gate         = "runtime/network/gate.go"
	restoredFile = "runtime/operator/restored.go"
	adopt        = "runtime/scheduler/adopt.go"
)

var mutants = []mutant{
	// The coordinator.
	{"coordinator: completes with one ack missing", acknowledge, "if len(p.waiting) == 0 {\n\t\tc.finalize(p)", "if len(p.waiting) <= 1 {\n\t\tc.finalize(p)"},
	{"coordinator: notifies before the pointer is stored", complete, "p.phase = pointing\n\t\t\tc.emit(StorePointer{ID: p.id, Dir: p.dir})", "p.phase = pointing\n\t\t\tc.emit(NotifyComplete{ID: p.id, Tasks: executions(p.tasks)})\n\t\t\tc.emit(StorePointer{ID: p.id, Dir: p.dir})"},
	{"coordinator: aborts while the pointer is being stored", acknowledge, "if p.phase == pointing {\n\t\t\tp.tasksGone = p.tasksGone || !ev.Part\n\t\t} else {\n\t\t\tc.abort(p, err, false)\n\t\t}", "c.abort(p, err, false)"},
	{"coordinator: drops the one before the retained ones", complete, "for len(c.retained) > c.cfg.Retained {\n\t\tc.drop(c.retained[0], &d)", "for len(c.retained) > c.cfg.Retained {\n\t\tc.drop(c.retained[len(c.retained)-1], &d)"},
	{"coordinator: discards the aborted checkpoint while it is written", acknowledge, "case p.phase == writing:\n\t\tc.doomed[p.id] = d", "case p.phase == writing:\n\t\tc.emit(d)"},
	{"coordinator: forgets the states of enumerators", complete, "Config: c.cfg.Conf, Coordinators: p.coord}", "Config: c.cfg.Conf}"},
	{"coordinator: no final checkpoint", trigger, "if c.endOfData && c.cfg.Interval <= 0 {", "if c.endOfData {"},
	{"coordinator: sweeps what is retained", complete, "for _, r := range c.retained {\n\t\ts.Keep.Dirs = append(s.Keep.Dirs, r.Dir)\n\t}", ""},
	{"coordinator: triggers without the enumerators' snapshot", trigger, "c.emit(SnapshotCoordinators{ID: p.id})\n\t\treturn", "c.emit(SnapshotCoordinators{ID: p.id})\n\t\tc.triggerTasks(p)\n\t\treturn"},
	{"coordinator: goes on with numbers that are not reserved", trigger, "if c.nextID > c.reserved {", "if false {"},
	{"coordinator: a fenced one goes on", complete, "c.fence(fmt.Errorf(\"store the pointer to checkpoint %d: %w\", ev.ID, ev.Err))\n\t\treturn", "p.phase = pointing"},
	{"coordinator: a late abort after the timeout is not told", acknowledge, "c.emit(NotifyAborted{ID: p.id,", "_ = (NotifyAborted{ID: p.id,"},
	{"coordinator: the savepoint of a stop is not notified", complete, "if !p.tasksGone {\n\t\tc.emit(NotifyComplete{", "if !p.tasksGone && p.kind != StopWithSavepoint {\n\t\tc.emit(NotifyComplete{"},
	{"coordinator: an ack of an earlier checkpoint counts", acknowledge, "p := c.find(ev.ID)\n\tif p == nil || p.phase != acking {\n\t\tc.lateAck(ev)", "p := c.find(ev.ID)\n\tif p == nil && len(c.pending) > 0 {\n\t\tp = c.pending[0]\n\t}\n\tif p == nil || p.phase != acking {\n\t\tc.lateAck(ev)"},
	{"coordinator: leaves what aborted checkpoints wrote, to the end", complete, "if keep && len(c.retained) > 0 {\n\t\tc.sweep()", "if keep && len(c.retained) > 0 {"},
	{"concurrent: two pointers are stored at a time", complete, "if c.reserving || c.pointing() != nil {", "if c.reserving {"},
	{"concurrent: a newer checkpoint does not end the older ones", complete, "if p.id > done.id || p.kind == Savepoint {\n\t\t\tcontinue", "if true {\n\t\t\tcontinue"},
	{"concurrent: a newer checkpoint ends savepoints", complete, "if p.id > done.id || p.kind == Savepoint {\n\t\t\tcontinue", "if p.id > done.id {\n\t\t\tcontinue"},
	{"concurrent: a checkpoint ends newer ones", complete, "if p.id > done.id || p.kind == Savepoint {\n\t\t\tcontinue", "if p.kind == Savepoint {\n\t\t\tcontinue"},
	{"concurrent: subsumed files go though a pending one refers to them", lent, "if last == 0 {", "if true {"},
	{"concurrent: lent files go with the first checkpoint that ends", lent, "return p.id <= last && !p.savepoint() && !p.full", "return p.id < last && p.id > last"},
	{"concurrent: lent files stay for ever", lent, "delete(c.lent, f)\n\t\t\td.Files = append(d.Files, f)", "delete(c.lent, f)"},
	{"concurrent: a sweep takes lent files", complete, "append(c.registry.Files(), slices.Sorted(maps.Keys(c.lent))...)", "append(c.registry.Files(), slices.Sorted(maps.Keys(c.lent))[:0]...)"},
	{"concurrent: a barrier does not say what is complete", trigger, "o.Base = c.retained[n-1].ID", "_ = n"},
	{"concurrent: a stop begins beside a savepoint", trigger, "return savepoints == 0", "return true"},
	{"concurrent: a time-out ends the first one only", trigger, "if p.phase != pointing && !c.now.Before(p.trigger.Add(c.cfg.Timeout)) {", "if p == c.pending[0] && len(c.pending) == 1 && p.phase != pointing && !c.now.Before(p.trigger.Add(c.cfg.Timeout)) {"},
	{"unaligned: savepoints begin beside checkpoints", trigger, "case c.cfg.Unaligned:\n\t\treturn len(c.pending) == 0", "case c.cfg.Unaligned && k != Savepoint:\n\t\treturn len(c.pending) == 0"},
	{"unaligned: what was restored is not read first", exchanges, "return math.MaxInt32", "return 0 * math.MaxInt32"},
	{"unaligned: what waited is read before what had arrived", exchanges, "if p.Sent {\n\t\treturn 0", "if !p.Sent {\n\t\treturn 0"},
	{"unaligned: only consumers' parts are kept", exchanges, "part.Producer, part.Consumer = e.Subtask, f.Channel\n", "continue\n"},
	{"increment: what was sent is known at once", increment, "t.sent[checkpoint] = files\n", "t.sent[checkpoint] = files\n\tt.replace(files)\n"},
	{"increment: an older notice takes the place of a newer one", increment, "if id <= checkpoint {", "if id == checkpoint {"},
	// Barriers.
	{"unaligned: no cut", control, "c.emit(Effect{Kind: Cut, Channel: ch})\n\treturn c.recorded(now)", "k.arrived = false\n\treturn c.recorded(now)"},
	{"unaligned: complete at the first cut", control, "if c.missing > 0 {\n\t\treturn recording{}", "if c.missing > 1 {\n\t\treturn recording{}"},
	{"unaligned: started again by a later barrier", control, "func (recording) onBarrier(c *control, ch int, b Barrier, now time.Time) state {\n\tswitch {", "func (recording) onBarrier(c *control, ch int, b Barrier, now time.Time) state {\n\tswitch {\n\tcase b.ID == c.pending.ID && !c.channels[ch].arrived && c.missing == 1:\n\t\treturn c.overtake(now)"},
	{"unaligned: what waits at the producer is not kept", overtake, "out[i] = c.dataBefore(c.queue.len())", "out[i] = nil"},
	{"unaligned: what a turned barrier overtakes is not kept", overtake, "out[i] = c.dataBefore(at)", "out[i] = c.dataBefore(0)"},
	{"unaligned: a turned barrier stays where it is", overtake, "c.putFirst(c.queue.remove(at).event.turned()) // unlocks", "*c.queue.at(at).event = *c.queue.at(at).event.turned()\n\t\tc.mu.Unlock()"},
	{"unaligned: restored records behind new ones", gate, "if item, ok = g.pollUrgentLocked(); !ok && len(g.restored) > 0 {", "if item, ok = g.pollUrgentLocked(); !ok && len(g.restored) > 0 && g.ready.len() == 0 {"},
	{"unaligned: barriers do not overtake what was restored", overtake, "if r.Channel == ch.index {", "if false {"},
	{"unaligned: restored watermarks count", restoredFile, "b = b[9:]\n\t\t\tcontinue", "out = append(out, b[:9]...)\n\t\t\tb = b[9:]\n\t\t\tcontinue"},
	{"unaligned: records go to every subtask", exchange, "return channel, metadata.SiftKeys, old.Start < now.End && now.Start < old.End", "return channel, metadata.SiftNone, old.Start < now.End && now.Start < old.End"},
	{"unaligned: records stay with the old subtask's number", exchange, "case same && to-from == producers:", "case p.Consumer < v.Parallelism:"},
	{"unaligned: a part of the subtasks is forgotten", exchange, "old.Start < now.End && now.Start < old.End", "old.Start < now.End && now.Start <= old.Start"},
	{"barrier: does not block", control, "k.blocked = true\n\t\tc.emit(Effect{Kind: Block, Channel: ch})", "_ = k"},
	{"barrier: starts at the first barrier", control, "return c.missing == 0", "return true"},
	{"barrier: starts with the last but one", control, "return c.missing == 0", "return c.missing <= 1"},
	{"barrier: does not unblock at an abort", control, "func (collecting) onAbort(c *control, id int64, now time.Time) state {\n\tif id == c.pending.ID {", "func (collecting) onAbort(c *control, id int64, now time.Time) state {\n\tif id == c.pending.ID && false {"},
	{"barrier: unblocks before it starts", control, "c.emit(Effect{Kind: Start, Barrier: c.pending, Alignment: now.Sub(c.since)})\n\treturn c.settle()", "b := c.pending\n\ts := c.settle()\n\tc.emit(Effect{Kind: Start, Barrier: b, Alignment: now.Sub(c.since)})\n\treturn s"},
	{"barrier: an ended channel is waited for", control, "c.pending, c.since, c.missing = b, now, c.open", "c.pending, c.since, c.missing = b, now, len(c.channels)"},
	{"barrier: takes up what was aborted", aligner, "if b.ID > a.c.latest && !a.c.aborted(b.ID) && !a.c.channels[ch].ended {", "if b.ID > a.c.latest && !a.c.channels[ch].ended {"},
	{"barrier: a newer barrier does not end the older alignment", control, "return collecting{}\n\tcase b.ID > c.pending.ID:\n\t\treturn c.abort(Subsumed, now).onBarrier(c, ch, b, now)", "return collecting{}\n\tcase b.ID > c.pending.ID:\n\t\treturn collecting{}"},
	// Two-phase commits.
	{"commit: forgets those of checkpoints that were not completed", sink, "o.pending = append(o.pending, metadata.Prepared{Checkpoint: b.ID, Items: items})", "o.pending = []metadata.Prepared{{Checkpoint: b.ID, Items: items}}"},
	{"commit: does not commit what was restored", sink, "for _, m := range mine {\n\t\tif err := c.Commit(ctx, m.Items, true); err != nil {", "for _, m := range mine[:0] {\n\t\tif err := c.Commit(ctx, m.Items, true); err != nil {"},
	{"commit: commits at the barrier", sink, "\tws, err := o.writer.Snapshot(b.ID)\n", "\tif o.committing != nil {\n\t\t_ = o.CheckpointComplete(b.ID)\n\t}\n\tws, err := o.writer.Snapshot(b.ID)\n"},
	{"commit: commits later checkpoints, too", sink, "if p.Checkpoint <= id {\n\t\t\t\to.committer.enqueue(p)", "if p.Checkpoint <= id+1 {\n\t\t\t\to.committer.enqueue(p)"},
	{"commit: only the checkpoint that is complete", sink, "if p.Checkpoint <= id {\n\t\t\t\to.committer.enqueue(p)", "if p.Checkpoint == id {\n\t\t\t\to.committer.enqueue(p)"},
	{"commit: siblings' committables are not told", sink, "sc.AllCommittables = append(sc.AllCommittables, c.Items...)", "_ = c.Items"},
	{"commit: a task ends before its commits", sink, "return o.committer == nil || o.committer.idle()", "return true"},
	{"commit: state without committables", sink, "s.Lists = append(s.Lists, split, union)", "s.Lists = append(s.Lists, union)"},
	{"commit: the first one only", sink, "if c.Checkpoint <= l.queued {", "if l.queued > 0 {"},
	// State and its redistribution.
	{"redistribute: one key group too few", redistribute, "if h.Range.Start < r.End && r.Start < h.Range.End {", "if h.Range.Start < r.End-1 && r.Start < h.Range.End {"},
	{"redistribute: the last handle wins", redistribute, "out[i].Keyed = append(out[i].Keyed, h)", "out[i].Keyed = []state.Handle{h}"},
	{"redistribute: list items go to all", redistribute, "shares[i%len(out)] = append(shares[i%len(out)], it)", "for j := range shares {\n\t\t\t\t\tshares[j] = append(shares[j], it)\n\t\t\t\t}\n\t\t\t\t_ = i"},
	{"redistribute: loses the last item", redistribute, "for i, it := range g.items {", "for i, it := range g.items[:len(g.items)-1] {"},
	{"redistribute: same when it is not", redistribute, "same := op.Parallelism == len(out)", "same := op.Parallelism <= len(out)"},
	{"redistribute: a union is dealt out", redistribute, "case g.mode == Union:", "case g.mode == Union && same:"},
	{"timers: not restored for a key", process, "if at, ok := timers.Next(); !ok || at > until {", "if at, ok := timers.Next(); !ok || at >= until {"},
	{"source: restored splits are read from the start", source, "restored = append(restored, s)", "s.State = make([]byte, len(s.State))\n\t\trestored = append(restored, s)"},
	{"enumerator: what was not handed out is forgotten", enumerator, "if l > 0 {\n\t\t\ten.pending =", "if false {\n\t\t\ten.pending ="},
	{"enumerator: hands out again after a restore", enumerator, "if en.pending == nil {\n\t\t\tb = binary.BigEndian.AppendUint32(b, 0)\n\t\t\tcontinue\n\t\t}", "if en.pending == nil {\n\t\t\tb = append(b, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0)\n\t\t\tcontinue\n\t\t}"},
	// High availability, storage, scheduling.
	{"ha: a superseded owner takes the token back", token, "if best := newest(tokens); best != nil && best.epoch == epoch {", "if best := newest(tokens); best != nil {"},
	{"ha: numbers are not kept over epochs", token, "mine.epoch, mine.reserved = epoch, best.reserved+1", "mine.epoch, mine.reserved = epoch, 1"},
	{"ha: the pointer is lost with the epoch", token, "mine := *best\n", "mine := *best\n\t\tmine.key = noKey\n"},
	{"storage: metadata is overwritten", metadata, "f.Create(ctx, tmp, false)", "f.Create(ctx, tmp, true)"},
	{"storage: a sweep takes newer ones", sweep, "ok && n < below && !slices.Contains(keepDirs", "ok && n >= 0 && !slices.Contains(keepDirs"},
	{"scheduler: reports of earlier attempts count", sched, "v.Tasks[id.Subtask].ID != id {", "false {"},
	{"scheduler: restarts before all tasks have ended", failure, "return x.State.Terminal() || s.state == JobRestarting && !s.byID[x.ID.Vertex].stage.ending", "return true || x.State.Terminal()"},
	{"scheduler: a restart keeps the attempt's number", sched, "s.attempt++\n", ""},
	{"scheduler: the end without a final checkpoint", sched, "if !s.cfg.Checkpoints {\n\t\ts.final", "if true {\n\t\ts.final"},

	// Tasks that another application master goes on with.
	{"adopt: what was under way is not given up", adopt, "if abort {", "if false {"},
	{"adopt: a task that has ended is taken for a running one", adopt, "case !t.Running:", "case false:"},
	{"adopt: sources that a stop has suspended go on so", adopt, "case t.Suspended || t.Finishing:", "case false:"},
	{"adopt: splits may have changed since the checkpoint", adopt, "case t.Source && (t.Assigned >= latest || t.Custom):", "case false:"},
}
