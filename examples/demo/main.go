// Command demo runs the order-totals pipeline on an embedded cluster, with an embedded Kafka broker and generated purchases, for a
// minute, and shows the totals as they come out. It needs nothing but Go. Ctrl-C, or a reader of its output that has gone, ends it in
// order; the exit code is then 0.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/term"

	"github.com/thalweg/thalweg/examples/order-totals/pipeline"
	"github.com/thalweg/thalweg/internal/logging"
	"github.com/thalweg/thalweg/internal/process"
	"github.com/thalweg/thalweg/stream"
)

const (
	inTopic, outTopic = "orders", "order-totals"
	partitions        = 2
	rate              = 2000 // purchases per second
	speed             = 12   // event time runs so many times faster, so that minutes end while one watches
)

func main() {
	length, verbose, err := parse(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(2)
	}
	ctx, stop := process.Ending(context.Background()) // "demo | head" ends like Ctrl-C, and leaves no folders behind
	defer stop()
	if err := demo(ctx, length, verbose); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// parse reads the command line. A length of 0 has no end but Ctrl-C.
func parse(args []string, out io.Writer) (length time.Duration, verbose bool, err error) {
	f := flag.NewFlagSet("demo", flag.ContinueOnError)
	var said bytes.Buffer // the flag package says errors itself; main does
	f.SetOutput(&said)
	f.DurationVar(&length, "for", time.Minute, "how long to run, such as 10s; 0 until Ctrl-C")
	f.BoolVar(&verbose, "v", false, "show the engine's log")
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			_, _ = out.Write(said.Bytes()) // only shows
			return 0, false, err
		}
		return 0, false, fmt.Errorf("%w (see demo -h)", err)
	}
	switch {
	case f.NArg() > 0:
		return 0, false, fmt.Errorf("unexpected argument %q: the demo takes flags only (see demo -h)", f.Arg(0))
	case length < 0:
		return 0, false, fmt.Errorf("-for %s: want a time such as 10s, or 0 to run until Ctrl-C", length)
	}
	return length, verbose, nil
}

type counts struct{ in, totals, counted, cents atomic.Int64 }

func demo(ctx context.Context, length time.Duration, verbose bool) error {
	broker, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(partitions, inTopic, outTopic))
	if err != nil {
		return fmt.Errorf("start the embedded broker: %w", err)
	}
	defer broker.Close()
	addr := strings.Join(broker.ListenAddrs(), ",")
	checkpoints, err := os.MkdirTemp("", "thalweg-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(checkpoints)

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if length > 0 {
		ctx, cancel = context.WithTimeout(ctx, length)
		defer cancel()
	}
	start := time.Now()
	var n counts
	restURL := make(chan string, 1)
	fmt.Printf("order-totals: %d purchases a second through an embedded Kafka broker (%s); one minute of event time passes in %v.\n",
		rate, addr, (time.Minute / speed).Round(time.Second))
	level := zerolog.Disabled
	if verbose {
		level = zerolog.InfoLevel
	}
	errs := make(chan error, 3)
	go func() { errs <- produce(ctx, addr, &n) }()
	go func() { errs <- show(ctx, addr, &n) }()
	go progress(ctx, &n, restURL)
	err = stream.RunLocal(ctx, "order-totals", pipeline.Build, stream.LocalOptions{
		Config: map[string]string{
			"parallelism.default": "2", "execution.checkpointing.interval": "1 s", "execution.checkpointing.dir": "file://" + checkpoints,
		},
		Args:    []string{"--brokers", addr, "--in", inTopic, "--out", outTopic, "--out-of-orderness", "10s", "--txn-prefix", "demo-"},
		REST:    "localhost:0",
		Logger:  logging.Console(os.Stderr, level),
		Started: func(url string) { restURL <- url },
	})
	cancel()
	err = errors.Join(err, <-errs, <-errs)
	fmt.Printf("\nDone after %v: %d purchases in; %d totals out, of %d purchases, %d.%02d in all. The other %d are in minutes that were still open.\n",
		time.Since(start).Round(time.Second), n.in.Load(), n.totals.Load(), n.counted.Load(), n.cents.Load()/100, n.cents.Load()%100, max(0, n.in.Load()-n.counted.Load()))
	return err
}

// produce writes purchases whose event time runs ahead of the clock.
func produce(ctx context.Context, addr string, n *counts) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.DefaultProduceTopic(inTopic), kgo.ProducerLinger(5*time.Millisecond))
	if err != nil {
		return fmt.Errorf("connect the producer: %w", err)
	}
	defer cl.Close()
	begin := time.Now()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for sent := int64(0); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		for due := int64(time.Since(begin).Seconds() * rate); sent < due; sent++ {
			at := begin.Add(speed * time.Duration(sent) * time.Second / rate).Add(-time.Duration(rand.IntN(8000)) * time.Millisecond)
			p := pipeline.Purchase{Customer: fmt.Sprintf("customer-%02d", rand.IntN(20)), Cents: 100 + rand.Int64N(9900), At: at.UTC()}
			b, err := json.Marshal(p)
			if err != nil {
				return err
			}
			cl.Produce(ctx, &kgo.Record{Key: []byte(p.Customer), Value: b}, func(_ *kgo.Record, err error) {
				if err == nil {
					n.in.Add(1)
				}
			})
		}
	}
}

// show reads what was committed and prints each minute's biggest spenders.
func show(ctx context.Context, addr string, n *counts) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumeTopics(outTopic), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxWait(200*time.Millisecond))
	if err != nil {
		return fmt.Errorf("connect the reader: %w", err)
	}
	defer cl.Close()
	for {
		fetches := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			return nil
		}
		minutes := map[time.Time][]pipeline.Total{}
		var order []time.Time
		var failed error
		fetches.EachRecord(func(r *kgo.Record) {
			var t pipeline.Total
			if err := json.Unmarshal(r.Value, &t); err != nil {
				failed = fmt.Errorf("unreadable total at offset %d: %w", r.Offset, err)
				return
			}
			n.totals.Add(1)
			n.counted.Add(t.Count)
			n.cents.Add(t.Cents)
			if _, ok := minutes[t.Start]; !ok {
				order = append(order, t.Start)
			}
			minutes[t.Start] = append(minutes[t.Start], t)
		})
		if failed != nil {
			return failed
		}
		for _, m := range order {
			fmt.Println(line(m, minutes[m]))
		}
	}
}

func line(minute time.Time, totals []pipeline.Total) string {
	best, sum, count := totals[0], int64(0), int64(0)
	for _, t := range totals {
		sum += t.Cents
		count += t.Count
		if t.Cents > best.Cents {
			best = t
		}
	}
	return fmt.Sprintf("\r%s  %2d customers  %5d purchases  %9d.%02d   most: %s with %d.%02d%s", minute.Format("15:04"), len(totals), count,
		sum/100, sum%100, best.Customer, best.Cents/100, best.Cents%100, clearLine())
}

func clearLine() string {
	if term.IsTerminal(int(os.Stdout.Fd())) {
		return "\x1b[K"
	}
	return ""
}

// progress shows one line about the job, from its REST interface.
func progress(ctx context.Context, n *counts, restURL <-chan string) {
	var url string
	select {
	case url = <-restURL:
	case <-ctx.Done():
		return
	}
	fmt.Printf("REST and status page: %s\n", url)
	tty := term.IsTerminal(int(os.Stdout.Fd()))
	lines := 5 // seconds between two
	if tty {
		lines = 1
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	// The job's metrics are a second old: what came in since is no lag.
	var before, now int64
	for second := 1; ; second++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		before, now = now, n.in.Load()
		if second%lines != 0 {
			continue
		}
		s, err := status(ctx, url)
		if err != nil {
			continue // the job is starting or ending
		}
		text := fmt.Sprintf("%s: %d records in, %d totals out, lag %d, last checkpoint %s", s.state, s.in, n.totals.Load(), max(0, before-s.in), s.checkpoint)
		if tty {
			fmt.Printf("\r%s%s", text, clearLine())
		} else {
			fmt.Println(text)
		}
	}
}

type jobStatus struct {
	state, checkpoint string
	in                int64
}

func status(ctx context.Context, url string) (jobStatus, error) {
	var s jobStatus
	var all struct {
		Jobs []struct{ JID, State string } `json:"jobs"`
	}
	if err := get(ctx, url+"/jobs/overview", &all); err != nil {
		return s, err
	}
	if len(all.Jobs) == 0 {
		return s, errors.New("no job yet")
	}
	var job struct {
		State    string `json:"state"`
		Vertices []struct {
			Name    string `json:"name"`
			Metrics struct {
				Read  int64 `json:"read-records"`
				Write int64 `json:"write-records"`
			} `json:"metrics"`
		} `json:"vertices"`
	}
	if err := get(ctx, url+"/jobs/"+all.Jobs[0].JID, &job); err != nil {
		return s, err
	}
	s.state = job.State
	for _, v := range job.Vertices {
		if strings.HasPrefix(v.Name, "Source:") {
			s.in += v.Metrics.Write
		}
	}
	var cps struct {
		Latest struct {
			Completed *struct {
				ID       int64 `json:"id"`
				Duration int64 `json:"end_to_end_duration"`
			} `json:"completed"`
		} `json:"latest"`
	}
	s.checkpoint = "none yet"
	if err := get(ctx, url+"/jobs/"+all.Jobs[0].JID+"/checkpoints", &cps); err == nil && cps.Latest.Completed != nil {
		s.checkpoint = fmt.Sprintf("%d (%d ms)", cps.Latest.Completed.ID, cps.Latest.Completed.Duration)
	}
	return s, nil
}

func get(ctx context.Context, url string, v any) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, 4<<20))
	if err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", url, res.Status)
	}
	return json.Unmarshal(b, v)
}
