package kafka_test

import (
	"context"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/connector/connectortest"
	"github.com/thalweg/thalweg/connector/kafka"
	"github.com/thalweg/thalweg/connector/kafka/kafkatest"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// rawBytes passes values on as they are.
type rawBytes struct{}

func (rawBytes) Serialize(dst []byte, v []byte) ([]byte, error) { return append(dst, v...), nil }
func (rawBytes) Deserialize(b []byte) ([]byte, error)           { return b, nil }
func (rawBytes) Name() string                                   { return "bytes" }

func benchCluster(b *testing.B, opts ...kfake.Opt) *kafkatest.Cluster {
	if s := os.Getenv(kafkatest.Env); s != "" {
		return kafkatest.Connect(b, s)
	}
	return kafkatest.NewFake(b, opts...)
}

func cpuTime() time.Duration {
	var r syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// measure reports records per second, records per CPU second of this process, and allocations per record.
func measure(b *testing.B, records int, fn func()) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	cpu, begin := cpuTime(), time.Now()
	fn()
	wall, used := time.Since(begin), cpuTime()-cpu
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(records)/wall.Seconds(), "records/s")
	b.ReportMetric(float64(records)/used.Seconds(), "records/cpu-s")
	b.ReportMetric(float64(after.Mallocs-before.Mallocs)/float64(records), "allocs/record")
	b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/float64(records), "B/record")
	b.ReportMetric(0, "ns/op")
}

const benchRecords = 1_000_000

type countOut struct{ n, bytes int64 }

func (c *countOut) Collect(v []byte, _ int64) error {
	c.n++
	c.bytes += int64(len(v))
	return nil
}
func (c *countOut) Split(string) connector.SplitOutput[[]byte] { return c }
func (c *countOut) ReleaseSplit(string)                        {}

// BenchmarkSource reads 1,000,000 records of 200 bytes in 4 partitions with one reader.
func BenchmarkSource(b *testing.B) {
	c := benchCluster(b)
	topic := c.Topic(b, 4)
	value := make([]byte, 200)
	for i := range value {
		value[i] = byte('a' + i%26)
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.Brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.MaxBufferedRecords(100_000))
	if err != nil {
		b.Fatal(err)
	}
	var failed atomic.Bool
	for i := range benchRecords {
		cl.Produce(context.Background(), &kgo.Record{Topic: topic, Partition: int32(i % 4), Value: value}, func(_ *kgo.Record, err error) {
			if err != nil && failed.CompareAndSwap(false, true) {
				b.Error(err)
			}
		})
	}
	if err := cl.Flush(context.Background()); err != nil {
		b.Fatal(err)
	}
	cl.Close()
	for b.Loop() {
		src := kafka.Source[[]byte](rawBytes{}, kafka.Brokers(c.Brokers...), kafka.Topics(topic))
		r, err := src.Reader(connector.ReaderContext{Parallelism: 1, Logger: connectortest.Logger(b)})
		if err != nil {
			b.Fatal(err)
		}
		if err := r.Start(context.Background()); err != nil {
			b.Fatal(err)
		}
		var splits []connector.Split
		for p := range int32(4) {
			splits = append(splits, kafka.SplitForTest(topic, p, 0))
		}
		out := &countOut{}
		measure(b, benchRecords, func() {
			if err := r.AddSplits(splits); err != nil {
				b.Fatal(err)
			}
			for out.n < benchRecords {
				st, err := r.Poll(out, 1000)
				if err != nil {
					b.Fatal(err)
				}
				if st == connector.NothingAvailable && out.n < benchRecords {
					<-r.Available()
				}
			}
		})
		if err := r.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

func benchSink(b *testing.B, opts ...kafka.SinkOption) {
	c := benchCluster(b, kfake.BlackholeProduce())
	topic := c.Topic(b, 4)
	value := make([]byte, 192)
	keys := make([][]byte, 1000)
	for i := range keys {
		keys[i] = []byte{'k', byte('0' + i/100), byte('0' + i/10%10), byte('0' + i%10), 'w', 'x', 'y', 'z'}
	}
	var n atomic.Int64
	opts = append([]kafka.SinkOption{
		kafka.Brokers(c.Brokers...), kafka.Topic(topic), kafka.KeyFunc(func([]byte) []byte { return keys[n.Add(1)%1000] }),
	}, opts...)
	for b.Loop() {
		r := connectortest.MustStartSink(b, kafka.Sink[[]byte](rawBytes{}, opts...), 1, nil, connectortest.SinkOptions{})
		w := r.Writer(0)
		measure(b, benchRecords, func() {
			for i := range benchRecords {
				if err := w.Write(value, 1_700_000_000_000); err != nil {
					b.Fatal(err)
				}
				if i%200_000 == 199_999 {
					r.Complete(r.Checkpoint())
				}
			}
		})
		r.Close()
	}
}

func BenchmarkSinkAtLeastOnce(b *testing.B) { benchSink(b, kafka.AtLeastOnce()) }

func BenchmarkSinkExactlyOnce(b *testing.B) {
	benchSink(b, kafka.ExactlyOnce(kafkatest.Name("bench")+"-"))
}
