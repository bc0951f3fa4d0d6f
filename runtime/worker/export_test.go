package worker

import (
	"context"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/network"
	"github.com/thalweg/thalweg/runtime/rpc"
)

// RunObserved is Run; observe sees the worker's exchange first.
func RunObserved(ctx context.Context, link rpc.WorkerUplink, cfg rpc.ProcessConfig, p *graph.Program, reg *fs.Registry, log zerolog.Logger, observe func(*network.Environment)) error {
	w := newWorker(link, cfg, p, reg, log)
	if observe != nil {
		observe(w.env.Network)
	}
	return w.run(ctx, cfg)
}
