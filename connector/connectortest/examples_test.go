package connectortest_test

import (
	"testing"

	"github.com/thalweg/thalweg/connector/connectortest"
)

// The connectors of the examples are as good as they say.

func TestShelves(t *testing.T)     { connectortest.TestSource(t, booksSuite()) }
func TestArchiveSink(t *testing.T) { connectortest.TestSink(t, 20, archiveSuite) }
