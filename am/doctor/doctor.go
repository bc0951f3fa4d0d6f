package doctor

import (
	"context"
	"regexp"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/thalweg/thalweg/am/submit"
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/yarnrpc/conf"
	yarnpb "github.com/thalweg/thalweg/yarnrpc/proto/yarn"
)

// Status is how a check went.
type Status string

// A Warn does not keep a job from running, or could not be looked at.
const (
	OK   Status = "ok"
	Warn Status = "warn"
	Fail Status = "fail"
)

// Finding is the outcome of one check.
type Finding struct {
	Check  string `json:"check"`
	Status Status `json:"status"`
	Text   string `json:"text"`
	Do     string `json:"do,omitempty"` // what to do about it
}

// YARN is the ResourceManager's side, as yarnrpc/client.Client speaks to it.
type YARN interface {
	submit.YARN
	Nodes(ctx context.Context, states ...yarnpb.NodeStateProto) ([]*yarnpb.NodeReportProto, error)
}

// Kafka is what to look at in Kafka; none without Brokers.
type Kafka struct {
	Brokers []string // host:port
	Options []kgo.Opt
	Topics  []string
	Prefix  string // of transactional ids
}

// Patient is who is examined. Config has been validated.
type Patient struct {
	Hadoop *conf.Configuration
	Config config.Configuration
	Files  *fs.Registry
	YARN   YARN
	User   string
	LibDir string // folder of thalweg-appmaster and thalweg-taskmanager
	Kafka  Kafka
	// Limit bounds each check; 30 s when it is 0.
	Limit time.Duration
	// Now is the clock; time.Now when nil.
	Now func() time.Time
}

// check makes findings. It returns when ctx ends.
type check func(ctx context.Context, p *Patient) []Finding

// Examine makes all checks and calls report with each finding, one after another. It returns how many failed.
//
// Errors: that of ctx.
func Examine(ctx context.Context, p Patient, report func(Finding)) (failed int, err error) {
	if p.Limit <= 0 {
		p.Limit = 30 * time.Second
	}
	if p.Now == nil {
		p.Now = time.Now
	}
	ctx, cancel := context.WithCancel(ctx)
	var results []chan []Finding
	for _, c := range []check{programs, hadoop, fileSystem, resourceManager, kafka} {
		done := make(chan []Finding, 1)
		results = append(results, done)
		go func() {
			defer close(done)
			done <- c(ctx, &p)
		}()
	}
	defer func() { // no check outlives the call
		cancel()
		for _, r := range results {
			<-r
		}
	}()
	for _, r := range results {
		for _, f := range <-r {
			if ctx.Err() != nil {
				return failed, ctx.Err()
			}
			if f.Status == Fail {
				failed++
			}
			report(f)
		}
	}
	return failed, ctx.Err()
}

func good(check, text string) Finding     { return Finding{Check: check, Status: OK, Text: text} }
func warn(check, text, do string) Finding { return Finding{check, Warn, text, do} }
func bad(check, text, do string) Finding  { return Finding{check, Fail, text, do} }
func skipped(check, because string) Finding {
	return warn(check, "not looked at", "first mend: "+because)
}

// Failure is what an error says of a check.
func Failure(check string, err error) Finding { return bad(check, plain(err), "") }

// pkg is the name of the package that an error comes from.
var pkg = regexp.MustCompile(`^(client|conf|folder|fs|hdfs|identity|ipc|kerberos|memory|staging|submit): `)

// plain is an error in one line, without the name of the package that it comes from.
func plain(err error) string {
	text := strings.Join(strings.Fields(err.Error()), " ")
	return text[len(pkg.FindString(text)):]
}
