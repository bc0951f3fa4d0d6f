package kafka

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"
)

// deadLetters writes records that could not be decoded to a topic, at least once: flush at each checkpoint and at the end.
type deadLetters struct {
	ctx   context.Context
	topic string
	cl    *kgo.Client

	mu  sync.Mutex
	err error
}

func newDeadLetters(ctx context.Context, cfg *sourceConfig, log zerolog.Logger, subtask int) (*deadLetters, error) {
	cl, err := cfg.newClient(log, fmt.Sprintf("dead-letter-%d", subtask),
		kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.RecordDeliveryTimeout(2*time.Minute))
	if err != nil {
		return nil, err
	}
	return &deadLetters{ctx: ctx, topic: cfg.onDecodeError.topic, cl: cl}, nil
}

func (d *deadLetters) failed() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

func (d *deadLetters) write(rec *Record, cause error) error {
	if err := d.failed(); err != nil {
		return err
	}
	headers := append(rec.Headers[:len(rec.Headers):len(rec.Headers)],
		Header{Key: "topic", Value: []byte(rec.Topic)},
		Header{Key: "partition", Value: strconv.AppendInt(nil, int64(rec.Partition), 10)},
		Header{Key: "offset", Value: strconv.AppendInt(nil, rec.Offset, 10)},
		Header{Key: "error", Value: []byte(cause.Error())})
	d.cl.Produce(d.ctx, &Record{Topic: d.topic, Key: rec.Key, Value: rec.Value, Headers: headers}, func(_ *Record, err error) {
		if err == nil {
			return
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.err == nil {
			d.err = fmt.Errorf("kafka: write to dead-letter topic %q: %w", d.topic, err)
		}
	})
	return nil
}

func (d *deadLetters) flush() error {
	if err := d.cl.Flush(d.ctx); err != nil {
		return errors.Join(d.failed(), fmt.Errorf("kafka: flush dead-letter topic %q: %w", d.topic, err))
	}
	return d.failed()
}

func (d *deadLetters) close() { d.cl.Close() }
