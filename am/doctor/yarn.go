package doctor

import (
	"context"
	"errors"
	"fmt"

	"github.com/thalweg/thalweg/am/submit"
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/yarnrpc/client"
	yarnpb "github.com/thalweg/thalweg/yarnrpc/proto/yarn"
	"github.com/thalweg/thalweg/yarnrpc/yarn"
)

// resourceManager looks at the ResourceManager, the containers that it grants, the queue and the nodes.
func resourceManager(ctx context.Context, p *Patient) []Finding {
	const check = "ResourceManager"
	ctx, cancel := context.WithTimeout(ctx, p.Limit)
	defer cancel()
	_, largest, err := p.YARN.NewApplication(ctx)
	if err != nil {
		f := Failure(check, err)
		var away *client.UnreachableError
		if errors.As(err, &away) {
			f.Do = "check the address in yarn-site.xml, and that it runs"
		}
		return []Finding{f, skipped("containers", check), skipped("queue", check), skipped("nodes", check)}
	}
	all := []Finding{good(check, fmt.Sprintf("answers; it grants containers of %s at most", largest))}
	if err := submit.Sizes(p.Config, largest); err != nil {
		all = append(all, Failure("containers", err))
	} else {
		all = append(all, good("containers", fmt.Sprintf("application master %s, TaskManager %s", config.JobManagerMemory.Value(p.Config), config.TaskManagerMemory.Value(p.Config))))
	}
	if err := submit.Queue(ctx, p.YARN, p.Config); err != nil {
		all = append(all, Failure("queue", err))
	} else {
		all = append(all, good("queue", submit.QueueName(p.Config)+" accepts applications"))
	}
	return append(all, nodes(ctx, p))
}

// nodes looks whether a TaskManager has room on a node, now or when nothing else runs there.
func nodes(ctx context.Context, p *Patient) Finding {
	const check = "nodes"
	list, err := p.YARN.Nodes(ctx, yarnpb.NodeStateProto_NS_RUNNING)
	if err != nil {
		return Failure(check, err)
	}
	worker := submit.WorkerSize(p.Config)
	fit, now := 0, 0
	for _, n := range list {
		capability, used := yarn.ResourceOf(n.GetCapability()), yarn.ResourceOf(n.GetUsed())
		if worker.Fits(capability) {
			fit++
		}
		if (yarn.Resource{MemoryMB: worker.MemoryMB + used.MemoryMB, VCores: worker.VCores + used.VCores}).Fits(capability) {
			now++
		}
	}
	switch {
	case len(list) == 0:
		return bad(check, "no NodeManager is running", "start one: `yarn node -list -all` tells the states of those that are known")
	case fit == 0:
		return bad(check, fmt.Sprintf("none of %d nodes is as large as a TaskManager (%s)", len(list), worker), "lower "+config.TaskManagerMemory.Key)
	case now == 0:
		return warn(check, fmt.Sprintf("none of %d nodes has room for a TaskManager (%s) now: a job would wait", len(list), worker), "`yarn node -list -showDetails` tells what uses them")
	}
	return good(check, fmt.Sprintf("%d run, %d have room for a TaskManager (%s) now", len(list), now, worker))
}
