package main

import (
	"context"
	"fmt"
	"strings"

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

// fullURI refuses what means another folder to the job's process than to whoever wrote it.
func fullURI(_ context.Context, flag, uri string) (string, error) {
	if strings.HasPrefix(uri, "/") || strings.Contains(uri, ":/") {
		return uri, nil
	}
	return "", &usageError{fmt.Errorf("%s = %q is no folder: give an absolute path or a URI such as file:///path or hdfs://host/path", flag, uri)}
}
