package jobmaster_test

import "github.com/thalweg/thalweg/runtime/rpc"

type (
	workerLink    = rpc.WorkerUplink
	processConfig = rpc.ProcessConfig
)
