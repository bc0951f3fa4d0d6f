// Package pipeline is the order-totals job: purchases from a Kafka topic are added up per customer and event-time window and written to
// another topic. The command order-totals and the demo run it.
package pipeline

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/thalweg/thalweg/connector/kafka"
	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/stream"
)

// Purchase is one input message.
type Purchase struct {
	Customer string    `json:"customer_id"`
	Cents    int64     `json:"amount_in_cents"`
	At       time.Time `json:"occurred_at"`
}

// Total is one output message: what a customer spent in a window.
type Total struct {
	Customer string    `json:"customer_id"`
	Start    time.Time `json:"window_start"`
	End      time.Time `json:"window_end"`
	Cents    int64     `json:"amount_in_cents"`
	Count    int64     `json:"count"`
}

// purchases decodes JSON, and takes a purchase without a time, or with one whose window has no bounds in JSON (whose times have the
// years 0 to 9999), for a value that cannot be decoded: the source knows where such a message is, the window would not.
type purchases struct {
	serde.Format[Purchase]
	least, most int64 // event times, milliseconds
}

func newPurchases(window time.Duration) purchases {
	year := func(y int) int64 { return time.Date(y, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli() }
	return purchases{serde.JSON[Purchase](), year(0) + window.Milliseconds(), year(10_000) - 1 - window.Milliseconds()}
}

func (f purchases) Deserialize(data []byte) (Purchase, error) {
	p, err := f.Format.Deserialize(data)
	if err != nil {
		return p, err
	}
	if p.At.IsZero() {
		return p, errors.New("the purchase has no occurred_at")
	}
	if ms := p.At.UnixMilli(); ms < f.least || ms > f.most {
		return p, fmt.Errorf("occurred_at %s: its window reaches out of the years 0 to 9999", p.At.Format(time.RFC3339Nano))
	}
	return p, nil
}

// Options are the job's flags.
type Options struct {
	Brokers                  string
	In, Out, DeadLetter      string
	Group                    string
	Guarantee, TxnPrefix     string
	Window, OutOfOrder, Idle time.Duration
	Bounded                  bool
	TransactionTimeout       time.Duration
	Discovery, Linger        time.Duration
}

// Parse reads the flags from the program's arguments. Usage is written to usage.
func Parse(args []string, usage io.Writer) (Options, error) {
	var o Options
	f := flag.NewFlagSet("order-totals", flag.ContinueOnError)
	f.SetOutput(usage)
	f.StringVar(&o.Brokers, "brokers", "localhost:9092", "Kafka bootstrap servers, comma separated")
	f.StringVar(&o.In, "in", "orders", "topic of purchases")
	f.StringVar(&o.Out, "out", "order-totals", "topic of totals")
	f.StringVar(&o.DeadLetter, "dead-letter", "", "topic for values that cannot be decoded or whose time has no window; without it they fail the job")
	f.StringVar(&o.Group, "group", "order-totals", "consumer group that offsets are committed to")
	f.StringVar(&o.Guarantee, "guarantee", "exactly-once", "none, at-least-once or exactly-once")
	f.StringVar(&o.TxnPrefix, "txn-prefix", "order-totals-", "prefix of transactional ids; unique for each job on a Kafka cluster")
	f.DurationVar(&o.TransactionTimeout, "txn-timeout", 15*time.Minute, "Kafka transaction time-out; at most the broker's transaction.max.timeout.ms")
	f.DurationVar(&o.Window, "window", time.Minute, "window size")
	f.DurationVar(&o.OutOfOrder, "out-of-orderness", 10*time.Second, "how far a purchase may be behind the latest one")
	f.DurationVar(&o.Idle, "idle", time.Minute, "a partition without purchases for so long does not hold results back; 0 for never")
	f.DurationVar(&o.Discovery, "discovery", 5*time.Minute, "how often to look for new partitions; 0 for never")
	f.DurationVar(&o.Linger, "linger", 5*time.Millisecond, "how long a total waits for others of its batch; 0 sends it at once")
	f.BoolVar(&o.Bounded, "bounded", false, "end at the offsets found at the start")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	var errs []error
	if f.NArg() > 0 {
		errs = append(errs, fmt.Errorf("unexpected argument %q", f.Arg(0)))
	}
	switch o.Guarantee {
	case "none", "at-least-once", "exactly-once":
	default:
		errs = append(errs, fmt.Errorf("--guarantee %q: want none, at-least-once or exactly-once", o.Guarantee))
	}
	return o, errors.Join(errs...)
}

// Build builds the job from the program's arguments.
func Build(env *stream.Environment) error {
	o, err := Parse(env.Args(), io.Discard)
	if err != nil {
		return err
	}
	if _, set := env.Config("execution.checkpointing.interval"); !set {
		env.EnableCheckpointing(10*time.Second, stream.ExactlyOnce)
	}
	brokers := kafka.Brokers(strings.Split(o.Brokers, ",")...)
	in := []kafka.SourceOption{brokers, kafka.Topics(o.In), kafka.GroupID(o.Group), kafka.StartCommitted(kafka.Earliest), kafka.PartitionDiscovery(o.Discovery)}
	if o.Bounded {
		in = append(in, kafka.EndLatest())
	}
	if o.DeadLetter != "" {
		in = append(in, kafka.OnDecodeError(kafka.DeadLetter(o.DeadLetter)))
	}
	out := []kafka.SinkOption{brokers, kafka.Topic(o.Out), kafka.Linger(o.Linger), kafka.KeyFunc(func(t Total) []byte { return []byte(t.Customer) })}
	switch o.Guarantee {
	case "none":
		out = append(out, kafka.NoGuarantee())
	case "at-least-once":
		out = append(out, kafka.AtLeastOnce())
	case "exactly-once":
		out = append(out, kafka.ExactlyOnce(o.TxnPrefix), kafka.TransactionTimeout(o.TransactionTimeout))
	}
	watermarks := stream.BoundedOutOfOrderness(o.OutOfOrder, func(p Purchase) time.Time { return p.At })
	if o.Idle > 0 {
		watermarks = watermarks.WithIdleness(o.Idle)
	}
	env.FromSource(kafka.Source[Purchase](newPurchases(o.Window), in...), watermarks, "orders").UID("orders").
		KeyBy(func(p Purchase) string { return p.Customer }).
		Window(stream.TumblingEventTime(o.Window)).
		Aggregate(totals{}, func(customer string, w stream.TimeWindow, s Spent) Total {
			return Total{customer, w.Start, w.End, s.Cents, s.Count}
		}).Name("customer totals").UID("customer-totals").
		SinkTo(kafka.Sink(serde.JSON[Total](), out...)).Name("totals out").UID("totals-out")
	return nil
}

// Spent is the accumulator of a customer's window.
type Spent struct{ Cents, Count int64 }

type totals struct{}

func (totals) Create() Spent { return Spent{} }
func (totals) Add(s *Spent, p Purchase) {
	s.Cents += p.Cents
	s.Count++
}
func (totals) Result(s Spent) Spent   { return s }
func (totals) Merge(a, b Spent) Spent { return Spent{a.Cents + b.Cents, a.Count + b.Count} }
