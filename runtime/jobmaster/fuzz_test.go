package jobmaster

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/ha"
	"github.com/thalweg/thalweg/runtime/jobmaster/jobtest"
	"github.com/thalweg/thalweg/runtime/scheduler"
)

// Stored progress and stored requirements of any content are taken, or refused: a job starts from nothing that its scheduler cannot hold.
func FuzzStored(f *testing.F) {
	g := jobtest.Graph(2, 3)
	v := g.Vertices[0].ID.String()
	f.Add([]byte(`{"v":1,"vertices":[{"id":"`+v+`","tasks":[{"execution":"x"},{}]}]}`), []byte(`{}`))
	f.Add([]byte(`{"v":1,"vertices":[{"id":"`+v+`","committing":true,"checkpoint":3,"tasks":[{"commit":"AgAAAAAAAAAAAAAAAAA="},{}]}]}`), []byte(`{"`+v+`":{"lower":-1,"upper":0}}`))
	f.Fuzz(func(t *testing.T, progress, required []byte) {
		g := jobtest.Graph(2, 3)
		j, err := New(Options{Graph: g, JobID: graph.JobID{ID: graph.ID{1}}, Epoch: 1, Store: ha.NewMemory()})
		if err != nil {
			t.Fatal(err)
		}
		j.setGraph(g)
		var p storedProgress
		if json.Unmarshal(progress, &p) != nil {
			return
		}
		done, err := j.resume(&p)
		if err != nil {
			return
		}
		var r scheduler.Requirements
		if json.Unmarshal(required, &r) != nil {
			return
		}
		s, err := scheduler.New(scheduler.Config{Graph: g, Strategy: scheduler.StrategyOf(nil, g.Mode), Resume: done, Requirements: j.requirements(r)})
		if err == nil {
			s.Step(time.UnixMilli(0), scheduler.Start{})
		}
	})
}
