// Command thalweg-appmaster is the ApplicationMaster of an application on YARN. It is started by YARN and takes no arguments; everything
// comes from its container's environment and credentials.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/thalweg/thalweg/am"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := am.Run(ctx, os.Getenv); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
