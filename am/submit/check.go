package submit

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	iofs "io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/thalweg/thalweg/checkpoint/storage"
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/config/memory"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/staging"
	"github.com/thalweg/thalweg/yarnrpc/client"
	"github.com/thalweg/thalweg/yarnrpc/conf"
	yarnpb "github.com/thalweg/thalweg/yarnrpc/proto/yarn"
	"github.com/thalweg/thalweg/yarnrpc/yarn"
)

// prepare runs the two sides at the same time: what the ResourceManager says, and what the file system says.
func (s *submission) prepare(ctx context.Context) error {
	side, cancel := context.WithCancel(ctx)
	defer cancel()
	type outcome struct{ yarn, fs error }
	var got outcome
	done := make(chan struct{})
	go func() {
		defer close(done)
		got.fs = s.checkFiles(side)
	}()
	if got.yarn = s.checkYARN(side); got.yarn != nil {
		cancel()
	}
	<-done
	if got.yarn != nil {
		return got.yarn
	}
	if got.fs == nil && config.CheckpointDir.Value(s.Config) == "" { // only now: both sides read the configuration
		config.CheckpointDir.Set(s.Config, s.store.URI(staging.CheckpointDir))
	}
	if got.fs == nil && config.ArchiveDir.Value(s.Config) == "" {
		config.ArchiveDir.Set(s.Config, s.store.URI(staging.HistoryDir))
	}
	return got.fs
}

// SizeError says that a container is larger than the cluster grants.
type SizeError struct {
	What    string // "application master", "TaskManager"
	Size    yarn.Resource
	Largest yarn.Resource
	Keys    string
}

func (e *SizeError) Error() string {
	return fmt.Sprintf("submit: the container of the %s (%s) is larger than the cluster's maximum (%s): lower %s", e.What, e.Size, e.Largest, e.Keys)
}

// sizes are the containers of the two kinds.
func sizes(c config.Configuration) (master, worker yarn.Resource) {
	mb := func(b config.Bytes) int64 { return (int64(b) + 1<<20 - 1) >> 20 }
	return yarn.Resource{MemoryMB: mb(config.JobManagerMemory.Value(c)), VCores: int32(config.YarnMasterCores.Value(c))}, //nolint:gosec // cores are few
		yarn.Resource{MemoryMB: mb(config.TaskManagerMemory.Value(c)), VCores: int32(memory.WorkerCores(c))} //nolint:gosec // cores are few
}

// WorkerSize is the container of a TaskManager. External resources that are not set as they should be are left out.
func WorkerSize(c config.Configuration) yarn.Resource {
	_, worker := sizes(c)
	if amounts, err := config.ExternalAmounts(c); err == nil {
		worker.Others = yarn.OthersOf(amounts)
	}
	return worker
}

func (s *submission) checkYARN(ctx context.Context) error {
	id, largest, err := s.YARN.NewApplication(ctx)
	if err != nil {
		return err
	}
	s.res.ID = id
	if err := Sizes(s.Config, largest); err != nil {
		return err
	}
	return Queue(ctx, s.YARN, s.Config)
}

// Sizes compares the containers of the two kinds with the largest that the cluster grants.
//
// Errors: *SizeError; *ConfigError for external resources.
func Sizes(c config.Configuration, largest yarn.Resource) error {
	master, _ := sizes(c)
	worker := WorkerSize(c)
	amounts, err := config.ExternalAmounts(c)
	if err != nil {
		return refuse(config.ExternalResources.Key, nil, "%v", err)
	}
	known := largest.Others.Amounts()
	for _, name := range slices.Sorted(maps.Keys(amounts)) {
		if most, ok := known[name]; !ok {
			return refuse(config.ExternalResources.Key, nil, "the cluster has no resource %q (%s, external-resource.NAME.yarn.config-key); beside memory and vcores it has %s",
				name, config.ExternalResources.Key, cmp.Or(strings.Join(slices.Sorted(maps.Keys(known)), ", "), "none (resource-types.xml of the ResourceManager)"))
		} else if amounts[name] > most {
			return refuse(config.ExternalResources.Key, nil, "a TaskManager is to have %d of %s, the cluster grants %d at most: lower external-resource.NAME.amount", amounts[name], name, most)
		}
	}
	if !master.Fits(largest) {
		return &SizeError{"application master", master, largest, config.JobManagerMemory.Key + " or " + config.YarnMasterCores.Key}
	}
	if !worker.Fits(largest) {
		return &SizeError{"TaskManager", worker, largest, config.TaskManagerMemory.Key + " or " + memory.CoresKey(c)}
	}
	return nil
}

// Queue looks whether the queue that the configuration names takes applications.
//
// Errors: *client.QueueNotFoundError, *ConfigError, those of y.
func Queue(ctx context.Context, y YARN, c config.Configuration) error {
	name := QueueName(c)
	q, err := y.Queue(ctx, name)
	switch {
	case err != nil:
		var missing *client.QueueNotFoundError
		if errors.As(err, &missing) {
			return fmt.Errorf("%w (set with %s)", err, config.YarnQueue.Key)
		}
		return err
	case q.GetState() != yarnpb.QueueStateProto_Q_RUNNING:
		return refuse(config.YarnQueue.Key, nil, "queue %q accepts no applications (%s): choose another with -D%s=...", name, q.GetState(), config.YarnQueue.Key)
	case len(q.GetChildQueues()) > 0:
		return refuse(config.YarnQueue.Key, nil, "queue %q is a parent queue: choose one of its children with -D%s=...", name, config.YarnQueue.Key)
	}
	return labels(ctx, y, c, q)
}

// labels looks whether the queue may use the node labels that are set, and whether a node has them: containers would be waited for in vain.
func labels(ctx context.Context, y YARN, c config.Configuration, q *yarnpb.QueueInfoProto) error {
	for _, o := range []*config.Option[string]{config.YarnNodeLabel, config.YarnWorkerNodeLabel} {
		label, may := strings.TrimSpace(o.Value(c)), q.GetAccessibleNodeLabels()
		if label == "" {
			continue
		}
		if !slices.Contains(may, label) && !slices.Contains(may, "*") {
			return refuse(o.Key, nil, "queue %q may not use nodes with the label %q (%s): it may use %s; choose another label, or another queue with -D%s=...",
				QueueName(c), label, o.Key, cmp.Or(strings.Join(may, ", "), "those without a label"), config.YarnQueue.Key)
		}
		nodes, err := y.Nodes(ctx, yarnpb.NodeStateProto_NS_RUNNING)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(nodes, func(n *yarnpb.NodeReportProto) bool { return slices.Contains(n.GetNodeLabels(), label) }) {
			return refuse(o.Key, nil, "no node that runs has the label %q (%s): `yarn node -list -showDetails` shows what labels they have", label, o.Key)
		}
	}
	return nil
}

// QueueName is the queue that an application of this configuration is submitted to.
func QueueName(c config.Configuration) string {
	if q := config.YarnQueue.Value(c); q != "" {
		return q
	}
	return "default"
}

func (s *submission) checkFiles(ctx context.Context) error {
	root, err := Root(s.Config, s.Hadoop, s.User)
	if err != nil {
		return err
	}
	for _, o := range folders() { // before anything is made
		if v := o.Value(s.Config); v != "" {
			if err := known(ctx, s.FS, o.Key, v); err != nil {
				return err
			}
		}
	}
	if err := s.checkSavepoint(ctx); err != nil {
		return err
	}
	if err := s.gather(ctx); err != nil {
		return err
	}
	f, p, err := s.FS.Resolve(ctx, root)
	if err != nil {
		return s.unreachable(config.YarnStaging.Key, root, err)
	}
	if s.store, err = staging.Open(ctx, f, p, s.User); err != nil {
		return s.unreachable(config.YarnStaging.Key, root, err)
	}
	if config.CheckpointDir.Value(s.Config) == "" {
		return nil // below the staging root, see prepare
	}
	return s.checkCheckpoints(ctx)
}

// checkSavepoint reads what the job is to start from. Whether it fits the graph is the application's to say: only there main runs.
func (s *submission) checkSavepoint(ctx context.Context) error {
	uri := config.SavepointPath.Value(s.Config)
	if uri == "" {
		return nil
	}
	cp, err := storage.ReadMetadata(ctx, s.FS, uri)
	if err == nil && config.ClaimMode.Value(s.Config) == "claim" {
		return s.checkOwners(ctx, uri, cp)
	}
	if err == nil || ctx.Err() != nil || errors.Is(err, fs.ErrUnavailable) {
		return s.unreachable(config.SavepointPath.Key, uri, err)
	}
	return refuse(config.SavepointPath.Key, err, "start from a savepoint (-s, %s): %s", config.SavepointPath.Key, strings.TrimPrefix(err.Error(), "storage: "))
}

// unreachable names the key of an address that nobody answers at.
func (s *submission) unreachable(key, uri string, err error) error {
	if errors.Is(err, fs.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
		var st *staging.Error
		if errors.As(err, &st) {
			err = st.Err
		}
		if errors.Is(err, fs.ErrSafeMode) {
			return fmt.Errorf("submit: the file system of %s took no writes within %s: %w (`hdfs dfsadmin -safemode get` tells why; it ends when the DataNodes have reported enough blocks, or by `-safemode leave`)",
				uri, config.ClientConnectTimeout.Value(s.Config), err)
		}
		from := key
		if !config.YarnStaging.IsSet(s.Config) && key == config.YarnStaging.Key {
			from = conf.KeyDefaultFS
			if file := s.Hadoop.Source(conf.KeyDefaultFS); file != "" {
				from += " in " + file
			}
		}
		return fmt.Errorf("submit: the file system of %s does not answer within %s: %w (address from %s: check it, and that the NameNode runs)",
			uri, config.ClientConnectTimeout.Value(s.Config), err, from)
	}
	return err
}

// checkCheckpoints makes the folder and writes a file into it: a job that can never store a checkpoint is refused here.
func (s *submission) checkCheckpoints(ctx context.Context) error {
	uri := config.CheckpointDir.Value(s.Config)
	f, p, err := s.FS.Resolve(ctx, uri)
	if err != nil {
		return s.unreachable(config.CheckpointDir.Key, uri, err)
	}
	defer f.Close() //nolint:errcheck // nothing is open
	missing, err := staging.Missing(ctx, f, p)
	if err == nil && len(missing) > 0 {
		s.undoing(uri, missing...)
		err = f.Mkdir(ctx, p, 0o700)
	}
	name := make([]byte, 8)
	_, _ = rand.Read(name) // never fails, by its contract
	probe := path.Join(p, ".probe-"+hex.EncodeToString(name))
	if err == nil {
		s.undoing(uri, probe)
		err = fs.WriteFile(ctx, f, probe, nil, false)
	}
	if err == nil {
		err = f.Remove(ctx, probe, false)
	}
	if err == nil {
		return nil
	}
	if errors.Is(err, iofs.ErrPermission) {
		return refuse(config.CheckpointDir.Key, err, "the checkpoint folder %s cannot be written by user %s: choose another with -D%s=..., or change its permissions", uri, s.User, config.CheckpointDir.Key)
	}
	if errors.Is(err, fs.ErrUnavailable) || ctx.Err() != nil {
		return s.unreachable(config.CheckpointDir.Key, uri, err)
	}
	return refuse(config.CheckpointDir.Key, err, "the checkpoint folder %s cannot be written: %v (%s)", uri, err, config.CheckpointDir.Key)
}
