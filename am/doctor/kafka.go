package doctor

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/thalweg/thalweg/config"
)

// kafka looks at the brokers, the topics with what this user may do there, and the limits of transactions.
func kafka(ctx context.Context, p *Patient) []Finding {
	const check = "Kafka"
	if len(p.Kafka.Brokers) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, p.Limit)
	defer cancel()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(p.Kafka.Brokers...), kgo.ClientID("thalweg-doctor")}, p.Kafka.Options...)...)
	if err != nil {
		return []Finding{Failure(check, err)}
	}
	defer cl.Close()
	meta, err := metadata(ctx, cl, p.Kafka.Topics)
	if err != nil {
		return append([]Finding{reach(check, p, err)}, skipped("topics", check), skipped("transactions", check))
	}
	all := []Finding{good(check, fmt.Sprintf("%d brokers behind %s", len(meta.Brokers), strings.Join(p.Kafka.Brokers, ",")))}
	for _, t := range meta.Topics {
		all = append(all, topic(t))
	}
	return append(all, transactions(ctx, cl, p))
}

// reach says why the brokers cannot be used.
func reach(check string, p *Patient, err error) Finding {
	brokers := strings.Join(p.Kafka.Brokers, ",")
	var refused *kerr.Error
	switch {
	case errors.Is(err, kerr.SaslAuthenticationFailed):
		return bad(check, "the brokers refuse the login: "+plain(err), "correct sasl.jaas.config in the file of --command-config")
	case errors.As(err, &refused):
		return bad(check, "the brokers refuse: "+plain(err), "")
	case errors.Is(err, context.DeadlineExceeded):
		return bad(check, brokers+" do not answer within "+p.Limit.String(), "check --bootstrap-server and security.protocol: a listener with TLS is silent to a client without it")
	}
	return bad(check, brokers+" cannot be reached: "+plain(err), "check --bootstrap-server, and that the brokers run")
}

// metadata asks for topics, with what this user may do with each.
func metadata(ctx context.Context, cl *kgo.Client, topics []string) (*kmsg.MetadataResponse, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation, req.IncludeTopicAuthorizedOperations = false, true
	req.Topics = []kmsg.MetadataRequestTopic{} // none; nil would be all
	for _, t := range topics {
		one := kmsg.NewMetadataRequestTopic()
		one.Topic = kmsg.StringPtr(t)
		req.Topics = append(req.Topics, one)
	}
	return req.RequestWith(ctx, cl)
}

// Bits of authorized operations. Source: Kafka's AclOperation, KIP-430.
const (
	mayRead  = 1 << 3
	mayWrite = 1 << 4
	unknown  = -1 << 31
)

func topic(t kmsg.MetadataResponseTopic) Finding {
	name := ""
	if t.Topic != nil {
		name = *t.Topic
	}
	check := "topic " + name
	switch err := kerr.ErrorForCode(t.ErrorCode); {
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return bad(check, "it does not exist, or this user may not see it", "create it, or give the user an ACL: kafka-acls.sh --add --operation Describe --topic "+name)
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		return bad(check, "this user may not see it", "kafka-acls.sh --add --operation Read (or Write) --topic "+name)
	case err != nil:
		return bad(check, plain(err), "")
	}
	leaderless := 0
	for _, p := range t.Partitions {
		if p.Leader < 0 {
			leaderless++
		}
	}
	text := fmt.Sprintf("%d partitions", len(t.Partitions))
	ops := t.AuthorizedOperations
	switch {
	case leaderless > 0:
		return bad(check, fmt.Sprintf("%d of %d partitions have no leader", leaderless, len(t.Partitions)), "their brokers are down: kafka-topics.sh --describe --topic "+name)
	case ops == unknown:
		return warn(check, text+"; the brokers do not tell what this user may do", "brokers before 2.3 do not know: read and write with kafka-console-consumer.sh and -producer.sh")
	case ops&mayRead == 0 && ops&mayWrite == 0:
		return bad(check, text+"; this user may neither read nor write", "kafka-acls.sh --add --operation Read (or Write) --topic "+name)
	case ops&mayWrite == 0:
		return good(check, text+"; this user may read, not write")
	case ops&mayRead == 0:
		return good(check, text+"; this user may write, not read")
	}
	return good(check, text+"; this user may read and write")
}

// sinkTimeout is the transaction time-out of an exactly-once sink that sets none.
const sinkTimeout = 15 * time.Minute

// transactions compares the longest transaction that the brokers allow with the checkpoints'.
func transactions(ctx context.Context, cl *kgo.Client, p *Patient) Finding {
	const check, key = "transactions", "transaction.max.timeout.ms"
	configs, err := kadm.NewClient(cl).DescribeBrokerConfigs(ctx)
	if err != nil {
		return warn(check, key+" cannot be read: "+plain(err), "it must be at least the sink's transaction time-out, "+sinkTimeout.String()+" by default")
	}
	longest := time.Duration(-1)
	for _, c := range configs {
		for _, k := range c.Configs {
			if ms, err := strconv.ParseInt(k.MaybeValue(), 10, 64); k.Key == key && err == nil && (longest < 0 || time.Duration(ms)*time.Millisecond < longest) {
				longest = time.Duration(ms) * time.Millisecond
			}
		}
	}
	interval, timeout := config.CheckpointInterval.Value(p.Config), config.CheckpointTimeout.Value(p.Config)
	switch {
	case longest < 0:
		return warn(check, "the brokers do not tell "+key, "this user needs the ACL DescribeConfigs on the cluster to read it")
	case longest < interval+timeout:
		return bad(check, fmt.Sprintf("%s is %s, less than a checkpoint's interval and time-out together (%s): transactions would end before they are committed", key, longest, interval+timeout),
			"raise it on the brokers, or lower "+config.CheckpointInterval.Key+" and "+config.CheckpointTimeout.Key)
	case longest < sinkTimeout:
		return warn(check, fmt.Sprintf("%s is %s, less than the default of the sink (%s)", key, longest, sinkTimeout), "give the sink kafka.TransactionTimeout("+longest.String()+") or less")
	}
	return good(check, fmt.Sprintf("as long as %s (%s)", longest, key))
}
