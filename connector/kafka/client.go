package kafka

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// newClient makes a client. own are this package's options; the user's come last.
func (c *clientConfig) newClient(log zerolog.Logger, id string, own ...kgo.Opt) (*kgo.Client, error) {
	opts := []kgo.Opt{
		kgo.SeedBrokers(c.brokers...),
		kgo.ClientID(c.clientID + "-" + id),
		kgo.WithLogger(clientLogger{log.With().Str("component", "kafka-client").Logger()}),
		kgo.DisableClientMetrics(),
	}
	opts = append(opts, own...)
	opts = append(opts, c.clientOpts...)
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, fmt.Errorf("kafka: make client: %w", err)
	}
	return cl, nil
}

// connect checks within the connect timeout that the cluster answers.
func (c *clientConfig) connect(ctx context.Context, log zerolog.Logger, id string) (*kgo.Client, *kadm.Client, error) {
	cl, err := c.newClient(log, id)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.connectTimeout)
	defer cancel()
	if err := pingUntil(ctx, cl); err != nil {
		cl.Close()
		return nil, nil, fmt.Errorf("kafka: connect to brokers %s: %w (waited up to %v; check kafka.Brokers and the listeners' security settings)",
			strings.Join(c.brokers, ","), err, c.connectTimeout)
	}
	return cl, kadm.NewClient(cl), nil
}

// pingUntil pings until a broker answers, the error is one that waiting does not cure, or ctx ends; it returns the last error of a ping.
func pingUntil(ctx context.Context, cl *kgo.Client) error {
	var last error
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		err := cl.Ping(ctx)
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		if ke := (*kerr.Error)(nil); errors.As(err, &ke) && !ke.Retriable {
			return last
		}
		select {
		case <-ctx.Done():
			return last
		case <-time.After(wait):
		}
	}
}

// checkTopics returns one error per topic that is missing or cannot be seen.
func checkTopics(ctx context.Context, adm *kadm.Client, topics ...string) (kadm.TopicDetails, error) {
	md, err := adm.Metadata(ctx, topics...)
	if err != nil {
		return nil, fmt.Errorf("kafka: read metadata of topics %s: %w", strings.Join(topics, ","), err)
	}
	var errs []error
	for _, t := range topics {
		d, ok := md.Topics[t]
		switch {
		case !ok || errors.Is(d.Err, kerr.UnknownTopicOrPartition):
			errs = append(errs, fmt.Errorf("kafka: topic %q does not exist: create it, or correct the name", t))
		case errors.Is(d.Err, kerr.TopicAuthorizationFailed):
			errs = append(errs, fmt.Errorf("kafka: topic %q: %w: grant DESCRIBE and READ or WRITE on it", t, d.Err))
		case d.Err != nil && !kerr.IsRetriable(d.Err):
			errs = append(errs, fmt.Errorf("kafka: topic %q: %w", t, d.Err))
		}
	}
	return md.Topics, errors.Join(errs...)
}

// clientLogger passes the client's log on, one level lower than it asks for: what matters reaches the task as errors.
type clientLogger struct{ log zerolog.Logger }

func (l clientLogger) Level() kgo.LogLevel {
	switch l.log.GetLevel() {
	case zerolog.TraceLevel:
		return kgo.LogLevelDebug
	case zerolog.DebugLevel:
		return kgo.LogLevelInfo
	case zerolog.Disabled:
		return kgo.LogLevelNone
	default:
		return kgo.LogLevelWarn
	}
}

func (l clientLogger) Log(level kgo.LogLevel, msg string, keyvals ...any) {
	ev := l.log.Debug()
	switch level {
	case kgo.LogLevelError, kgo.LogLevelWarn:
		ev = l.log.Warn()
	case kgo.LogLevelDebug:
		ev = l.log.Trace()
	}
	ev.Fields(keyvals).Msg(msg)
}
