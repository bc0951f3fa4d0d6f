package main

import (
	"context"

	"github.com/thalweg/thalweg/am/submit"
)

// folder is the URI of a folder that a flag names, for all containers of the cluster.
func (k *cluster) folder(ctx context.Context, flag, uri string) (string, error) {
	files, err := k.files()
	if err != nil {
		return "", &usageError{err}
	}
	return submit.Target(ctx, flag, uri, k.hadoop, files)
}
