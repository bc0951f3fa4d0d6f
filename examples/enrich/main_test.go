package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/thalweg/thalweg/examples/internal/localrun"
	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/stream/streamtest"
)

// service answers the second time that it is asked for a customer, and never for the slow one.
func service(t *testing.T) string {
	var mu sync.Mutex
	asked := map[string]int{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := r.URL.Query().Get("customer")
		mu.Lock()
		asked[name]++
		first := asked[name] == 1
		mu.Unlock()
		switch {
		case name == "slow":
			<-r.Context().Done()
		case first:
			http.Error(w, "not now", http.StatusServiceUnavailable)
		default:
			fmt.Fprintf(w, "tier of %s\n", name)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func TestTiersAreAskedForAgainAndGivenUp(t *testing.T) {
	url := service(t)
	h := streamtest.New(t, func(in stream.DataStream[Order]) stream.SingleOutputStreamOperator[Enriched] {
		return enriched(in, url)
	})
	slow, ann, bob := Order{1, "slow", 5}, Order{2, "ann", 6}, Order{3, "bob & co", 7}
	h.Push(slow, ann, bob) // and a restart, with all of them in flight
	h.Await(func() bool { return len(h.Out.Records()) == 2 })
	h.ExpectInAnyOrder(Enriched{ann, "tier of ann"}, Enriched{bob, "tier of bob & co"})
	h.End()
	h.Expect(Enriched{slow, "unknown"})
}

func TestProgram(t *testing.T) {
	var out streamtest.Output[Enriched]
	streamtest.Start(t, build, streamtest.Sink("out", &out), streamtest.Args("-orders", "100")).End()
	got := out.Take()
	tiers := map[string]int{}
	for _, e := range got {
		tiers[e.Tier]++
	}
	if len(got) != 100 || tiers["gold"]+tiers["silver"]+tiers["bronze"] != 100 {
		t.Errorf("%d orders: %v", len(got), tiers)
	}
}

func TestOnTheEmbeddedCluster(t *testing.T) {
	localrun.Expect(t, build, []string{"-orders", "100"}, 100, "order 7 of Ada (gold)")
}
