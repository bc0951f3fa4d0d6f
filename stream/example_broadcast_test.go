package stream_test

import (
	"context"
	"fmt"

	"github.com/thalweg/thalweg/stream"
)

type transfer struct {
	Account string
	Cents   int64
}

type threshold struct {
	Name  string
	Cents int64
}

// thresholds is the broadcast state: every subtask has all of it.
var thresholds = stream.NewMapStateDescriptor[string, int64]("thresholds")

// audit tells transfers above the threshold, which may come later than they do: until then they wait in the account's state.
type audit struct {
	stream.NoBroadcastTimers[string, string]
	waiting stream.ListState[transfer]
}

func (a *audit) Open(rt *stream.RuntimeContext[string]) (err error) {
	a.waiting, err = rt.ListState[transfer]("waiting")
	return err
}

func (a *audit) ProcessElement(ctx *stream.KeyedReadOnlyContext[string], t transfer, out *stream.Collector[string]) error {
	state, err := ctx.BroadcastState(thresholds) // for reading
	if err != nil {
		return err
	}
	limit, known := state.Get("transfer")
	if !known {
		return a.waiting.Add(t)
	}
	a.tell(t, limit, out)
	return nil
}

func (a *audit) ProcessBroadcastElement(ctx *stream.KeyedBroadcastContext[string], r threshold, out *stream.Collector[string]) error {
	state, err := ctx.BroadcastState(thresholds)
	if err != nil {
		return err
	}
	state.Put(r.Name, r.Cents)
	return ctx.ApplyToKeyedState(a.waiting, func(_ string, waiting stream.ListState[transfer]) error {
		all, err := waiting.Get()
		if err != nil {
			return err
		}
		for _, t := range all {
			a.tell(t, r.Cents, out)
		}
		return waiting.Clear()
	})
}

func (*audit) tell(t transfer, limit int64, out *stream.Collector[string]) {
	if t.Cents > limit {
		out.Collect(fmt.Sprintf("%s: %d", t.Account, t.Cents))
	}
}

// Rules go to every subtask of a function that also reads a keyed stream, with the key's state. Which of both streams comes first makes no
// difference here.
func ExampleKeyedBroadcastConnectedStream_Process() {
	build := func(env *stream.Environment) error {
		rules := env.FromCollection(threshold{"transfer", 1000}).BroadcastState(thresholds)
		env.FromCollection(transfer{"ann", 500}, transfer{"bob", 5000}, transfer{"ann", 1001}).
			KeyBy(func(t transfer) string { return t.Account }).
			ConnectBroadcast(rules).
			Process(func() stream.KeyedBroadcastProcessFunction[string, transfer, threshold, string] { return &audit{} }).UID("audit").
			SetParallelism(2).
			Print().SetParallelism(1)
		return nil
	}
	if err := stream.RunLocal(context.Background(), "audit", build, stream.LocalOptions{}); err != nil {
		fmt.Println(err)
	}
	// Unordered output:
	// bob: 5000
	// ann: 1001
}
