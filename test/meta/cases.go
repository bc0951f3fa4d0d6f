package meta

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
)

// Case is an odd configuration.
type Case struct {
	Conf   map[string]string
	Splits int     // of the sources
	Pad    int     // bytes that clicks carry about, at most
	Rate   float64 // clicks per second, 0 for as fast as can be
	Fail   []int64 // clicks at which user code fails
}

// Options are the configuration's own with those of the job: "splits", "pad", "rate", "fail".
func (c *Case) options() map[string]string {
	o := maps.Clone(c.Conf)
	if c.Splits != 1 {
		o["splits"] = strconv.Itoa(c.Splits)
	}
	if c.Pad != 0 {
		o["pad"] = strconv.Itoa(c.Pad)
	}
	if c.Rate != 0 {
		o["rate"] = strconv.FormatFloat(c.Rate, 'g', -1, 64)
	}
	if len(c.Fail) > 0 {
		o["fail"] = strings.Trim(fmt.Sprint(c.Fail), "[]")
	}
	return o
}

// String is what ParseCase takes: key=value, with semicolons.
func (c *Case) String() string {
	o := c.options()
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(o)) {
		parts = append(parts, k+"="+o[k])
	}
	return strings.Join(parts, ";")
}

// ParseCase reads a case.
func ParseCase(text string) (*Case, error) {
	c := &Case{Conf: map[string]string{}, Splits: 1}
	for part := range strings.SplitSeq(text, ";") {
		if part == "" {
			continue
		}
		k, v, _ := strings.Cut(part, "=")
		var err error
		switch k {
		case "splits":
			c.Splits, err = strconv.Atoi(v)
		case "pad":
			c.Pad, err = strconv.Atoi(v)
		case "rate":
			c.Rate, err = strconv.ParseFloat(v, 64)
		case "fail":
			for n := range strings.FieldsSeq(v) {
				var i int64
				if i, err = strconv.ParseInt(n, 10, 64); err != nil {
					break
				}
				c.Fail = append(c.Fail, i)
			}
		default:
			c.Conf[k] = v
		}
		if err != nil {
			return nil, fmt.Errorf("case %q: %s: %w", text, k, err)
		}
	}
	return c, nil
}

// without returns the case without one of its options.
func (c *Case) without(option string) (*Case, error) {
	var parts []string
	for part := range strings.SplitSeq(c.String(), ";") {
		if k, _, _ := strings.Cut(part, "="); k != option {
			parts = append(parts, part)
		}
	}
	return ParseCase(strings.Join(parts, ";"))
}

// restores makes user code fail between checkpoints that come each few milliseconds.
const restores = "execution.checkpointing.interval=4ms;restart-strategy.type=fixed-delay;restart-strategy.fixed-delay.attempts=100;restart-strategy.fixed-delay.delay=1ms;" +
	"execution.checkpointing.tolerable-failed-checkpoints=1000;rate=8000;fail=700 1500 2500 3100"

// Odd are the fixed cases.
var Odd = []string{
	"",
	"parallelism.default=2;splits=2",
	"parallelism.default=7;splits=3",
	"parallelism.default=1;pipeline.max-parallelism=1;splits=4",
	"parallelism.default=2;pipeline.max-parallelism=2",
	"parallelism.default=7;pipeline.max-parallelism=7;splits=7",
	"parallelism.default=3;pipeline.max-parallelism=32768;splits=5",
	"pipeline.operator-chaining.enabled=false",
	"pipeline.operator-chaining.enabled=false;parallelism.default=2;splits=2",
	"execution.buffer-timeout.interval=0ms;parallelism.default=2",
	"execution.buffer-timeout.interval=0ms;pipeline.operator-chaining.enabled=false",
	"taskmanager.memory.segment-size=1b;parallelism.default=2;splits=2",
	"taskmanager.memory.segment-size=1b;taskmanager.network.memory.buffers-per-channel=1;taskmanager.network.memory.floating-buffers-per-gate=0;parallelism.default=2;splits=3",
	"taskmanager.memory.segment-size=64b;pad=200;parallelism.default=2",
	"taskmanager.network.memory.buffers-per-channel=1;taskmanager.network.memory.floating-buffers-per-gate=0;parallelism.default=3;splits=3",
	"taskmanager.network.memory.buffers-per-channel=100;execution.buffer-timeout.interval=10s;parallelism.default=2",
	"pad=70000;taskmanager.memory.segment-size=32kb;parallelism.default=2",
	"pad=3000;state.backend.type=pebble;parallelism.default=2;splits=2",
	"state.backend.type=pebble",
	"state.backend.type=pebble;parallelism.default=2;taskmanager.memory.managed.fraction=0.01;splits=2",
	"state.backend.type=pebble;parallelism.default=7;pipeline.max-parallelism=7;splits=2",
	"pipeline.auto-watermark-interval=1ms;parallelism.default=2;splits=2",
	"pipeline.auto-watermark-interval=1h;parallelism.default=2",
	"execution.checkpointing.interval=2ms;parallelism.default=2;splits=2;rate=20000",
	"execution.checkpointing.interval=2ms;execution.checkpointing.min-pause=3ms;execution.checkpointing.num-retained=5;execution.checkpointing.fs.memory-threshold=0;rate=20000",
	"execution.checkpointing.interval=3ms;state.backend.type=pebble;execution.checkpointing.fs.memory-threshold=0;parallelism.default=2;rate=20000",
	restores,
	restores + ";parallelism.default=2;splits=2",
	restores + ";parallelism.default=3;splits=5;pipeline.operator-chaining.enabled=false",
	restores + ";parallelism.default=2;state.backend.type=pebble;splits=2",
	restores + ";parallelism.default=2;state.backend.type=pebble;execution.checkpointing.fs.memory-threshold=0;execution.checkpointing.num-retained=3",
	restores + ";parallelism.default=2;taskmanager.memory.segment-size=1b;taskmanager.network.memory.buffers-per-channel=1;splits=3",
	restores + ";parallelism.default=7;pipeline.max-parallelism=7;execution.buffer-timeout.interval=0ms;splits=4",
	restores + ";parallelism.default=2;pad=20000",
	restores + ";parallelism.default=2;splits=3;taskmanager.numberOfTaskSlots=1",
	restores + ";parallelism.default=3;splits=5;execution.checkpointing.max-concurrent-checkpoints=4",
	restores + ";parallelism.default=2;splits=3;state.backend.type=pebble;execution.checkpointing.fs.memory-threshold=0;execution.checkpointing.max-concurrent-checkpoints=3",
	restores + ";parallelism.default=3;splits=5;execution.checkpointing.unaligned.enabled=true",
	restores + ";parallelism.default=2;splits=3;execution.checkpointing.unaligned.enabled=true;execution.checkpointing.aligned-checkpoint-timeout=2ms;taskmanager.memory.segment-size=100b",
	restores + ";parallelism.default=2;state.backend.type=pebble;execution.checkpointing.unaligned.enabled=true;execution.checkpointing.fs.memory-threshold=0",
	"execution.runtime-mode=batch;parallelism.default=2;execution.checkpointing.unaligned.enabled=true",
	"execution.runtime-mode=batch",
	"execution.runtime-mode=batch;parallelism.default=2;splits=2",
	"execution.runtime-mode=batch;parallelism.default=3;splits=3;pipeline.operator-chaining.enabled=false;taskmanager.memory.segment-size=64b",
	"execution.runtime-mode=batch;parallelism.default=2;fail=900 2000",
	"execution.runtime-mode=batch;parallelism.default=2;execution.sorted-inputs.memory=1mb;pad=2000;splits=2",
	"jobmanager.scheduler=adaptive;parallelism.default=3;splits=2",
}

// Random draws a case of options that may go together.
func Random(seed uint64) *Case {
	r := rand.New(rand.NewPCG(seed, 4)) //nolint:gosec // repeatable on purpose
	p := 1 + r.IntN(7)
	parts := []string{fmt.Sprintf("parallelism.default=%d", p), fmt.Sprintf("splits=%d", 1+r.IntN(8))}
	add := func(chance int, options ...string) {
		if r.IntN(100) < chance {
			parts = append(parts, options[r.IntN(len(options))])
		}
	}
	add(40, fmt.Sprintf("pipeline.max-parallelism=%d", p), fmt.Sprintf("pipeline.max-parallelism=%d", p+r.IntN(200)))
	add(40, "pipeline.operator-chaining.enabled=false")
	add(30, "pipeline.object-reuse=true")
	add(40, "execution.buffer-timeout.interval=0ms", "execution.buffer-timeout.interval=1ms", "execution.buffer-timeout.interval=1s")
	add(40, "taskmanager.memory.segment-size=1b", "taskmanager.memory.segment-size=100b", "taskmanager.memory.segment-size=1kb")
	add(40, "taskmanager.network.memory.buffers-per-channel=1", "taskmanager.network.memory.buffers-per-channel=7")
	add(30, "taskmanager.network.memory.floating-buffers-per-gate=0")
	add(50, "state.backend.type=pebble")
	add(40, "execution.checkpointing.unaligned.enabled=true", "execution.checkpointing.unaligned.enabled=true;execution.checkpointing.aligned-checkpoint-timeout=2ms",
		"execution.checkpointing.max-concurrent-checkpoints=3")
	add(30, "pipeline.auto-watermark-interval=1ms", "pipeline.auto-watermark-interval=30ms")
	add(40, "pad=50", "pad=5000")
	add(60, restores, "execution.checkpointing.interval=2ms;rate=20000", "execution.runtime-mode=batch")
	c, err := ParseCase(strings.Join(parts, ";"))
	if err != nil {
		panic(cmp.Or(err.Error(), "a case of the table")) // a mistake above
	}
	return c
}
