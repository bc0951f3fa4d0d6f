// Command totals is the order-totals job with knobs for the tests: where it goes wrong, how fast it is, what it is called.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/thalweg/thalweg/connector/kafka"
	"github.com/thalweg/thalweg/examples/order-totals/pipeline"
	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/stream"
)

type options struct {
	brokers, in, out, group, prefix, uid, policy, panicOn, start, until string
	delay, txnTimeout                                                   time.Duration
	maxParallelism                                                      int
	bounded, shaky, collection                                          bool
}

func parse(args []string) (o options, err error) {
	f := flag.NewFlagSet("totals", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.StringVar(&o.brokers, "brokers", "", "bootstrap servers")
	f.StringVar(&o.in, "in", "", "topic of purchases")
	f.StringVar(&o.out, "out", "", "topic of totals")
	f.StringVar(&o.group, "group", "totals", "consumer group")
	f.StringVar(&o.prefix, "txn-prefix", "totals-", "prefix of transactional ids")
	f.DurationVar(&o.txnTimeout, "txn-timeout", 14*time.Minute, "transaction time-out")
	f.StringVar(&o.uid, "uid", "customer-totals", "uid of the window operator")
	f.StringVar(&o.policy, "policy", "fail", "what to do with a record that cannot be decoded: fail or skip")
	f.StringVar(&o.panicOn, "panic-on", "", "customer whose first purchase makes the job panic")
	f.StringVar(&o.start, "start", "committed", "where to start without state: committed or latest")
	f.DurationVar(&o.delay, "delay", 0, "time that each record takes")
	f.StringVar(&o.until, "delay-until", "", "file that ends the delay once it is there")
	f.IntVar(&o.maxParallelism, "max-parallelism", 0, "key groups of the window operator")
	f.BoolVar(&o.bounded, "bounded", false, "end at the offsets found at the start")
	f.BoolVar(&o.shaky, "shaky", false, "build another graph each time")
	f.BoolVar(&o.collection, "collection", false, "read three numbers in place of Kafka, and print them")
	err = f.Parse(args)
	return o, err
}

var builds int

func build(env *stream.Environment) error {
	o, err := parse(env.Args())
	if err != nil {
		return err
	}
	if o.collection {
		builds++
		uid := "numbers"
		if o.shaky {
			uid = fmt.Sprintf("numbers-%d", builds)
		}
		env.FromCollection(1, 2, 3).UID(uid).Map(func(n int) int { return n * n }).Name("square").UID("square").Print().UID("out")
		return nil
	}
	brokers, patience := kafka.Brokers(strings.Split(o.brokers, ",")...), kafka.ConnectTimeout(5*time.Second)
	in := []kafka.SourceOption{brokers, patience, kafka.Topics(o.in), kafka.GroupID(o.group), kafka.StartCommitted(kafka.Earliest), kafka.PartitionDiscovery(0)}
	if o.start == "latest" {
		in = append(in, kafka.StartLatest())
	}
	if o.bounded {
		in = append(in, kafka.EndLatest())
	}
	if o.policy == "skip" {
		in = append(in, kafka.OnDecodeError(kafka.Skip))
	}
	watermarks := stream.BoundedOutOfOrderness(time.Second, func(p pipeline.Purchase) time.Time { return p.At })
	totals := env.FromSource(kafka.Source(serde.JSON[pipeline.Purchase](), in...), watermarks, "orders").UID("orders").
		Map(func(p pipeline.Purchase) pipeline.Purchase {
			if o.panicOn != "" && p.Customer == o.panicOn {
				panic("no mercy for " + p.Customer)
			}
			if o.delay > 0 {
				if _, err := os.Stat(o.until); err != nil {
					time.Sleep(o.delay)
				}
			}
			return p
		}).Name("look at purchase").UID("look").
		KeyBy(func(p pipeline.Purchase) string { return p.Customer }).
		Window(stream.TumblingEventTime(time.Second)).
		Aggregate(stream.Sum(func(p pipeline.Purchase) int64 { return p.Cents }), func(c string, w stream.TimeWindow, cents int64) pipeline.Total {
			return pipeline.Total{Customer: c, Start: w.Start, End: w.End, Cents: cents}
		}).Name("customer totals").UID(o.uid)
	if o.maxParallelism > 0 {
		totals = totals.SetMaxParallelism(o.maxParallelism)
	}
	totals.SinkTo(kafka.Sink(serde.JSON[pipeline.Total](), brokers, patience, kafka.Topic(o.out), kafka.ExactlyOnce(o.prefix), kafka.TransactionTimeout(o.txnTimeout),
		kafka.KeyFunc(func(t pipeline.Total) []byte { return []byte(t.Customer) }))).Name("totals out").UID("totals-out")
	return nil
}

func main() {
	if _, err := parse(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "totals:", err)
		os.Exit(2)
	}
	stream.Main("totals", build)
}
