package worker

import (
	"testing"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/config/memory"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/rpc"
	"github.com/thalweg/thalweg/state"
)

// What the keyed operators of a container's slots may use together is the managed part of the container, as config/memory divides it,
// however many there are; and each can have the slot's share while the others need none.
func TestStateMemoryIsTheContainersManagedPart(t *testing.T) {
	conf := config.Configuration{"taskmanager.memory.process.size": "1gb", "state.backend.type": "pebble"}
	parts, err := memory.ForTaskManager(conf)
	if err != nil {
		t.Fatal(err)
	}
	for _, slots := range []int{1, 4} {
		cfg := rpc.ProcessConfig{MemoryBytes: int64(parts.Container), Slots: slots}
		p := pools{bytes: stateMemory(conf, cfg), made: map[poolKey]*state.Pool{}, graph: &graph.JobGraph{Vertices: []graph.Vertex{
			{SlotSharingGroup: "a", Operators: []graph.Operator{{Keyed: true}, {}, {Keyed: true}}}, {SlotSharingGroup: "a", Operators: []graph.Operator{{Keyed: true}}},
			{SlotSharingGroup: "b", Operators: []graph.Operator{{Keyed: true}}},
		}}}
		var sum int64
		for i := range slots {
			pool := p.get("a", i)
			if pool.Members != 3 || pool != p.get("a", i) {
				t.Errorf("pool %+v", pool)
			}
			sum += pool.Bytes
		}
		if sum > int64(parts.Managed) || sum < int64(parts.Managed)*9/10 {
			t.Errorf("%d slots: %d bytes of %d", slots, sum, parts.Managed)
		}
		if other := p.get("b", 0); other.Members != 1 || other == p.get("a", 0) {
			t.Errorf("%+v", other)
		}
	}
}
