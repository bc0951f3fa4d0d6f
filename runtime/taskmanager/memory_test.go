package taskmanager

import "testing"

// The worker that goes is the one that takes most, whatever the order in which it is looked at.
func TestHeaviestWorker(t *testing.T) {
	for range 20 {
		if job, total := heaviest(10, map[string]int64{"a": 5, "b": 70, "c": 70, "d": 1}); job != "b" || total != 156 {
			t.Fatalf("%s, %d", job, total)
		}
	}
	if job, total := heaviest(10, nil); job != "" || total != 10 {
		t.Errorf("%q, %d", job, total)
	}
}
