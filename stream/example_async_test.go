package stream_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/thalweg/thalweg/stream"
)

var errBusy = errors.New("busy")

// lookup stands for a client of a service that is busy at the first call for each name.
type lookup struct {
	mu    sync.Mutex
	calls map[string]int
}

func (l *lookup) find(_ context.Context, name string) ([]string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.calls[name]++; l.calls[name] == 1 {
		return nil, errBusy
	}
	return []string{fmt.Sprintf("%s found at call %d", name, l.calls[name])}, nil
}

// Many records wait for answers at once. OrderedWait keeps their order; UnorderedWait lets answers go on as they come.
func ExampleDataStream_OrderedWait() {
	service := &lookup{calls: map[string]int{}}
	build := func(env *stream.Environment) error {
		retry := stream.RetryExponential[string](5, time.Millisecond, time.Second, 2)
		retry.OnError = func(err error) bool { return errors.Is(err, errBusy) } // others fail the job at once
		env.FromCollection("ann", "bob", "cas").
			OrderedWait(stream.Async(service.find), stream.AsyncOptions[string]{Timeout: time.Minute, Capacity: 10, Retry: retry}).UID("lookup").
			Print()
		return nil
	}
	if err := stream.RunLocal(context.Background(), "lookup", build, stream.LocalOptions{}); err != nil {
		fmt.Println(err)
	}
	// Output:
	// ann found at call 2
	// bob found at call 2
	// cas found at call 2
}
