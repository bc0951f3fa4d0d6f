package stream

import (
	"strings"
	"testing"
	"time"

	"github.com/thalweg/thalweg/config"
)

// What unaligned checkpoints cannot be combined with is refused before anything runs, with the keys to change.
func TestUnalignedCheckpointsAreRefused(t *testing.T) {
	dealt := func(e *Environment) {
		e.FromCollection(1, 2).PartitionCustom(func(k, n int) int { return k % n }, func(i int) int { return i }).SinkTo(&collect[int]{})
	}
	plain := func(e *Environment) { e.FromCollection(1, 2).Rebalance().SinkTo(&collect[int]{}) }
	for name, c := range map[string]struct {
		conf  config.Configuration
		build func(*Environment)
		want  []string // parts of the error; none: it runs
	}{
		"at least once": {nil, func(e *Environment) {
			e.EnableCheckpointing(time.Second, AtLeastOnce).EnableUnalignedCheckpoints(true)
			plain(e)
		}, []string{"execution.checkpointing.unaligned.enabled", "execution.checkpointing.mode"}},
		"at least once, submitted": {config.Configuration{"execution.checkpointing.mode": "at_least_once"}, func(e *Environment) {
			e.EnableCheckpointing(time.Second, ExactlyOnce).EnableUnalignedCheckpoints(true)
			plain(e)
		}, []string{"execution.checkpointing.mode"}},
		"turned off by the submission": {config.Configuration{"execution.checkpointing.unaligned.enabled": "false"}, func(e *Environment) {
			e.EnableCheckpointing(time.Second, AtLeastOnce).EnableUnalignedCheckpoints(true)
			plain(e)
		}, nil},
		"partition function": {nil, func(e *Environment) {
			e.EnableCheckpointing(time.Second, ExactlyOnce).EnableUnalignedCheckpoints(true).SetAlignedCheckpointTimeout(time.Second)
			dealt(e)
		}, []string{"unaligned_test.go:", "execution.checkpointing.unaligned.enabled", "execution.checkpointing.unaligned.forced", "PartitionCustom"}},
		"partition function, forced": {config.Configuration{"execution.checkpointing.unaligned.forced": "true"}, func(e *Environment) {
			e.EnableCheckpointing(time.Second, ExactlyOnce).EnableUnalignedCheckpoints(true)
			dealt(e)
		}, nil},
		"partition function in BATCH": {config.Configuration{"execution.runtime-mode": "batch"}, func(e *Environment) {
			e.EnableUnalignedCheckpoints(true)
			dealt(e)
		}, nil},
		"several at a time": {nil, func(e *Environment) {
			e.EnableCheckpointing(time.Second, ExactlyOnce).EnableUnalignedCheckpoints(true).SetMaxConcurrentCheckpoints(2)
			plain(e)
		}, []string{"execution.checkpointing.unaligned.enabled", "execution.checkpointing.max-concurrent-checkpoints = 2"}},
		"several at a time, with a pause, which makes them one": {config.Configuration{"execution.checkpointing.min-pause": "1 s"}, func(e *Environment) {
			e.EnableCheckpointing(time.Second, ExactlyOnce).EnableUnalignedCheckpoints(true).SetMaxConcurrentCheckpoints(2)
			plain(e)
		}, nil},
		"none at a time": {nil, func(e *Environment) {
			e.SetMaxConcurrentCheckpoints(0)
			plain(e)
		}, []string{"0 concurrent checkpoints"}},
		"negative timeout": {nil, func(e *Environment) {
			e.SetAlignedCheckpointTimeout(-time.Second)
			plain(e)
		}, []string{"aligned checkpoint timeout -1s is negative"}},
	} {
		e := newEnvironment("test", c.conf, nil)
		c.build(e)
		_, err := e.translate()
		if (err != nil) != (c.want != nil) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, part := range c.want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %v\nwant %s", name, err, part)
			}
		}
	}
	if err := config.Validate(config.Configuration{"execution.checkpointing.unaligned.enabled": "true", "execution.checkpointing.mode": "at_least_once"}); err == nil {
		t.Error("a configuration with both is taken")
	}
}
