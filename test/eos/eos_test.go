package eos_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/thalweg/thalweg/test/eos"
	"github.com/twmb/franz-go/pkg/kfake"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// good is the history of a faultless run: input, transactions with aborts in between, a concurrent reader.
func good(t *testing.T, brokers []string, name string) *eos.History {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	c := eos.Cluster{Brokers: brokers}
	spec := eos.DefaultSpec(7, 3000)
	spec.Step = 100 * time.Millisecond
	spec.MalformedEvery = 1000
	spec.Customers = 20
	in, out, dead := "in-"+name, "out-"+name, "dead-"+name
	if err := c.CreateTopics(ctx, 4, in); err != nil {
		t.Fatal(err)
	}
	if err := c.CreateTopics(ctx, 3, out, dead); err != nil {
		t.Fatal(err)
	}
	w, err := c.Watch(ctx, out, in, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Write(ctx, in, spec, 0, 1234, 0); err != nil {
		t.Fatal(err)
	}
	if err := c.Write(ctx, in, spec, 1234, spec.Records, 0); err != nil {
		t.Fatal(err)
	}
	if err := c.WriteSentinels(ctx, in, spec); err != nil {
		t.Fatal(err)
	}
	if err := c.WriteResults(ctx, out, name+"-0-0", spec, 3, 17); err != nil {
		t.Fatal(err)
	}
	if err := c.WriteDeadLetters(ctx, dead, spec); err != nil {
		t.Fatal(err)
	}
	h, err := c.Collect(ctx, eos.CollectOptions{Spec: spec, Input: in, Output: out, DeadLetter: dead, Prefix: name + "-", Parallelism: 1, Pool: 2})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.WaitFor(ctx, len(h.Of(eos.KindOut))); err != nil {
		t.Fatal(err)
	}
	live, err := w.Stop()
	if err != nil {
		t.Fatal(err)
	}
	h.Add(live...)
	// Three checkpoints, the offsets of the first two committed after each; and the counts of a job that was restored from the first.
	at := time.Now().UTC()
	for i, o := range []int64{300, 500, 700} {
		cp := eos.Event{Kind: eos.KindCheckpoint, At: at.Add(time.Duration(2*i) * time.Second), Checkpoint: int64(i + 1), Offsets: map[int32]int64{}}
		for p := range int32(4) {
			cp.Offsets[p] = o + int64(p)
			if i < 2 {
				h.Add(eos.Event{Kind: eos.KindGroup, At: cp.At.Add(time.Second), Partition: p, Offset: o + int64(p)})
			}
		}
		h.Add(cp)
	}
	all := int64(len(h.Of(eos.KindIn)))
	h.Add(eos.Event{Kind: eos.KindOperator, ID: "orders", In: all - 1206, Out: all - 1208, Filtered: 2})
	h.Add(eos.Event{Kind: eos.KindOperator, ID: "orders to windows", In: all - 1208, Out: all - 1208})
	return h
}

func clusters(t *testing.T, fn func(t *testing.T, brokers []string)) {
	t.Run("fake", func(t *testing.T) {
		f, err := kfake.NewCluster(kfake.NumBrokers(1))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		fn(t, f.ListenAddrs())
	})
	if b := os.Getenv("THALWEG_KAFKA"); b != "" {
		t.Run("real", func(t *testing.T) { fn(t, strings.Split(b, ",")) })
	}
}

// The checker's own test: a good history passes, and each mutant of it is caught, always.
func TestEachMutantIsCaught(t *testing.T) {
	clusters(t, func(t *testing.T, brokers []string) {
		name := fmt.Sprintf("x%d", time.Now().UnixNano())
		h := good(t, brokers, name)
		v := eos.Judge(h)
		if !v.OK {
			t.Fatalf("a good history does not pass: %+v", v)
		}
		for _, c := range v.Checks {
			if !c.Checked {
				t.Errorf("check %d (%s) was not done", c.Number, c.Name)
			}
		}
		for _, m := range eos.Mutants() {
			t.Run(m.Name, func(t *testing.T) {
				for seed := range uint64(25) {
					bad := m.Apply(h, rand.New(rand.NewPCG(seed, 3)))
					if bad == nil {
						t.Fatal("the history has nothing to spoil in this way")
					}
					if v := eos.Judge(bad); v.OK {
						t.Fatalf("seed %d is not caught", seed)
					}
				}
			})
		}
	})
}

func TestHistoryIsTheSameAfterWritingAndReading(t *testing.T) {
	clusters(t, func(t *testing.T, brokers []string) {
		h := good(t, brokers, fmt.Sprintf("y%d", time.Now().UnixNano()))
		path := filepath.Join(t.TempDir(), "history.jsonl")
		if err := h.AppendFile(path); err != nil {
			t.Fatal(err)
		}
		again, err := eos.ReadHistoryFiles(path)
		if err != nil {
			t.Fatal(err)
		}
		var a, b bytes.Buffer
		if err := h.Write(&a); err != nil {
			t.Fatal(err)
		}
		if err := again.Write(&b); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(a.Bytes(), b.Bytes()) {
			t.Fatal("the history changed")
		}
		if v := eos.Judge(again); !v.OK {
			t.Fatalf("%+v", v)
		}
	})
}

// The input is a function of its spec: no record is late for a watermark that trails by the disorder, in each partition.
func TestInputIsNeverLate(t *testing.T) {
	s := eos.DefaultSpec(3, 50_000)
	high := map[int32]time.Time{}
	for n := range s.Records {
		p, at := s.Partition(n), s.Purchase(n).At
		if at.Before(high[p].Add(-s.OutOfOrder)) {
			t.Fatalf("record %d at %v is more than %v below %v", n, at, s.OutOfOrder, high[p])
		}
		if at.After(high[p]) {
			high[p] = at
		}
	}
	if a, b := s.Value(123), s.Value(123); !bytes.Equal(a, b) {
		t.Fatal("a record is made in two ways")
	}
}

func TestReadConsole(t *testing.T) {
	evs, err := eos.ReadConsole(strings.NewReader("Partition:2\tOffset:7\tc1\t{\"a\":1}\nCreateTime:1\tPartition:0\tOffset:1\tc2\t{}\n\nProcessed a total of 2 messages\n"))
	if err != nil || len(evs) != 2 || evs[0].Partition != 2 || evs[0].Offset != 7 || evs[0].Key != "c1" || evs[0].Value != `{"a":1}` || evs[1].Key != "c2" {
		t.Fatalf("%+v %v", evs, err)
	}
	if _, err := eos.ReadConsole(strings.NewReader("a\tb\tc\n")); err == nil {
		t.Fatal("no error")
	}
}

// An empty history, or one without evidence, never passes.
func TestNoEvidenceIsNoPass(t *testing.T) {
	if v := eos.Judge(&eos.History{}); v.OK {
		t.Fatal("an empty history passes")
	}
	spec := eos.DefaultSpec(1, 10)
	h := &eos.History{}
	h.Add(eos.Event{Kind: eos.KindSpec, Spec: &spec})
	if v := eos.Judge(h); v.OK {
		t.Fatal("a history without output passes")
	}
}

// A check is only called done when its own evidence is there, not something weaker.
func TestCheckWithoutItsEvidenceIsNotDone(t *testing.T) {
	f, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h := good(t, f.ListenAddrs(), "z")
	for check, kinds := range map[int][]eos.Kind{
		4: {eos.KindLive}, 6: {eos.KindTxn}, 7: {eos.KindCheckpoint, eos.KindGroup}, 9: {eos.KindOperator}, 10: {eos.KindRaw},
	} {
		for _, k := range kinds {
			less := &eos.History{}
			for _, e := range h.Events {
				if e.Kind != k && (k != eos.KindRaw || e.Kind != eos.KindMarker) {
					less.Add(e)
				}
			}
			for _, c := range eos.Judge(less).Checks {
				if c.Number == check && c.Checked {
					t.Errorf("check %d (%s) was done without %q", c.Number, c.Name, k)
				}
			}
		}
	}
}
