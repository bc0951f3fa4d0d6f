package stream

import (
	"strings"
	"testing"
	"time"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/runtime/graph"
)

// settled builds a program of a source, a map, a keyed reduce and a sink under a configuration.
func settled(t *testing.T, conf config.Configuration, change func(env *Environment, m SingleOutputStreamOperator[int], out DataStreamSink[int])) (*graph.JobGraph, error) {
	t.Helper()
	p, err := program("test", func(env *Environment) error {
		m := env.FromSource[int](&collection[int]{}, NoWatermarks[int](), "numbers").UID("numbers").Map(func(v int) int { return v }).UID("map")
		out := m.KeyBy(func(v int) int { return v }).Reduce(func(a, b int) int { return a + b }).UID("sums").Print().UID("out")
		if change != nil {
			change(env, m, out)
		}
		return nil
	}, conf, nil)
	if err != nil {
		return nil, err
	}
	return p.Graph, nil
}

func names(g *graph.JobGraph) string {
	var n []string
	for _, v := range g.Vertices {
		n = append(n, v.Name)
	}
	return strings.Join(n, " | ")
}

func TestExecutionConfigurationIsHonoured(t *testing.T) {
	const chained = "Source: numbers -> Map | Keyed Reduce -> Sink: Print to Std. Out"
	max64 := func(_ *Environment, m SingleOutputStreamOperator[int], _ DataStreamSink[int]) {
		m.SetMaxParallelism(64)
	}
	for key, c := range map[string]struct {
		value  string
		change func(*Environment, SingleOutputStreamOperator[int], DataStreamSink[int])
		check  func(g *graph.JobGraph) bool
	}{
		"parallelism.default":      {"3", nil, func(g *graph.JobGraph) bool { return g.Vertices[0].Parallelism == 3 && g.Slots() == 3 }},
		"pipeline.max-parallelism": {"77", nil, func(g *graph.JobGraph) bool { return g.Vertices[1].MaxParallelism == 77 && !g.Vertices[1].MaxDerived }},
		"pipeline.operator-chaining.enabled": {"false", nil, func(g *graph.JobGraph) bool {
			return names(g) == strings.ReplaceAll(chained, " -> ", " | ")
		}},
		"pipeline.operator-chaining.chain-operators-with-different-max-parallelism": {"false", max64, func(g *graph.JobGraph) bool {
			return names(g) == "Source: numbers | Map | Keyed Reduce -> Sink: Print to Std. Out"
		}},
		"pipeline.name": {"other", nil, func(g *graph.JobGraph) bool { return g.Name == "other" }},
		"execution.buffer-timeout.interval": {"5ms", func(env *Environment, _ SingleOutputStreamOperator[int], _ DataStreamSink[int]) {
			env.SetBufferTimeout(time.Second)
		}, func(g *graph.JobGraph) bool { return config.BufferTimeout.Value(g.Config) == 5*time.Millisecond }},
		"pipeline.auto-watermark-interval": {"1s", nil, func(g *graph.JobGraph) bool { return config.WatermarkInterval.Value(g.Config) == time.Second }},
	} {
		g, err := settled(t, config.Configuration{key: c.value}, c.change)
		if err != nil || !c.check(g) {
			t.Errorf("-D%s=%s: %v: %v", key, c.value, err, g)
		}
	}
	g, err := settled(t, nil, max64)
	if err != nil || names(g) != chained || g.Vertices[0].MaxParallelism != 128 || !g.Vertices[0].MaxDerived {
		t.Errorf("by default: %v: %v", err, g)
	}
	if _, err := settled(t, config.Configuration{"pipeline.auto-generate-uids": "false"}, func(_ *Environment, m SingleOutputStreamOperator[int], _ DataStreamSink[int]) {
		m.Print()
	}); err == nil || !strings.Contains(err.Error(), "settings_test.go") || !strings.Contains(err.Error(), "has no UID") {
		t.Errorf("an operator without UID: %v", err)
	}
}

func TestSettingsOfOperators(t *testing.T) {
	g, err := settled(t, config.Configuration{"parallelism.default": "2"}, func(_ *Environment, m SingleOutputStreamOperator[int], out DataStreamSink[int]) {
		m.SlotSharingGroup("heavy").SetParallelism(3).SetMaxParallelism(99).Name("double").SetDescription("doubles -> more").StartNewChain()
		out.DisableChaining().SetDescription("prints").SetParallelism(1).SetMaxParallelism(5)
	})
	if err != nil {
		t.Fatal(err)
	}
	if names(g) != "Source: numbers | double | Keyed Reduce | Sink: Print to Std. Out" || g.Slots() != 2+3 {
		t.Errorf("%s in %d slots", names(g), g.Slots())
	}
	double := g.Vertices[1]
	if double.Parallelism != 3 || double.MaxParallelism != 99 || double.SlotSharingGroup != "heavy" || double.Operators[0].Description != "doubles -> more" {
		t.Errorf("double: %+v", double)
	}
	// What follows is in the group of its input, unless it sets another.
	if g.Vertices[2].SlotSharingGroup != "heavy" || g.Vertices[3].SlotSharingGroup != "heavy" || g.Vertices[0].SlotSharingGroup != "default" || g.Vertices[3].MaxParallelism != 5 {
		t.Errorf("groups: %+v", g.Vertices)
	}
	for want, change := range map[string]func(env *Environment, m SingleOutputStreamOperator[int], out DataStreamSink[int]){
		"parallelism 0 is not positive": func(_ *Environment, m SingleOutputStreamOperator[int], _ DataStreamSink[int]) { m.SetParallelism(0) },
		"max parallelism 40000 is not between 1 and 32768": func(_ *Environment, _ SingleOutputStreamOperator[int], out DataStreamSink[int]) {
			out.SetMaxParallelism(40000)
		},
		"max parallelism 0 is not between": func(env *Environment, _ SingleOutputStreamOperator[int], _ DataStreamSink[int]) {
			env.SetMaxParallelism(0)
		},
		"the group has no name": func(_ *Environment, m SingleOutputStreamOperator[int], _ DataStreamSink[int]) { m.SlotSharingGroup("") },
		"buffer time-out 1\u00b5s is below": func(env *Environment, _ SingleOutputStreamOperator[int], _ DataStreamSink[int]) {
			env.SetBufferTimeout(time.Microsecond)
		},
		"max parallelism 2 must be between the": func(_ *Environment, m SingleOutputStreamOperator[int], _ DataStreamSink[int]) {
			m.SetParallelism(3).SetMaxParallelism(2)
		},
	} {
		if _, err := settled(t, nil, change); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "settings_test.go") && !strings.Contains(err.Error(), "must be") {
			t.Errorf("%q: %v", want, err)
		}
	}
}

func TestSlotSharingGroupsRunApart(t *testing.T) {
	out := &collect[int]{}
	err := runJob(t, map[string]string{"parallelism.default": "2"}, func(env *Environment) error {
		env.FromCollection(1, 2, 3, 4).Map(func(v int) int { return 10 * v }).SlotSharingGroup("heavy").
			Filter(func(v int) bool { return v > 10 }).SlotSharingGroup("default").SinkTo(out)
		return nil
	})
	if got := strings.Join(sorted(out), " "); err != nil || got != "20 30 40" {
		t.Errorf("%s, %v", got, err)
	}
}

// A mode is taken in the spellings that -D takes.
func TestCheckpointingModes(t *testing.T) {
	for _, mode := range []CheckpointingMode{ExactlyOnce, AtLeastOnce, "EXACTLY_ONCE", "At-Least-Once"} {
		e := newEnvironment("modes", nil, nil)
		e.EnableCheckpointing(time.Second, mode)
		if got, ok := e.Config("execution.checkpointing.mode"); len(e.wrong) > 0 || !ok || config.AtLeastOnce(e.effective()) != strings.HasPrefix(strings.ToLower(string(mode)), "at") {
			t.Errorf("%q: %q, %v", mode, got, e.wrong)
		}
	}
}
