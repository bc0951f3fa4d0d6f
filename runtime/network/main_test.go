package network

import (
	"testing"

	"github.com/rs/zerolog"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func quietLog() zerolog.Logger { return zerolog.Nop() }
