package operator

// Valve combines the watermarks of several channels: its output is the least watermark over the active ones.
//
// A channel that ended (it sent MaxWatermark) no longer counts, but it does not decide either: when every other channel is merely
// idle, only theirs count (an ended input must not make the late ones of an idle input late): the highest watermark of the idle ones,
// whatever order they became idle in. Only when all ended is it MaxWatermark.
// Source: Flink StatusWatermarkValve; FLINK-38477 for the ended-and-idle rule.
type Valve struct {
	channels []valveChannel
	out      int64
	idle     bool
}

type valveChannel struct {
	watermark int64
	idle      bool
}

// NewValve returns a valve for n channels, all active with no watermark.
func NewValve(n int) *Valve {
	v := &Valve{channels: make([]valveChannel, n), out: MinWatermark}
	for i := range v.channels {
		v.channels[i].watermark = MinWatermark
	}
	return v
}

// Output is the combined watermark so far.
func (v *Valve) Output() int64 { return v.out }

// OnWatermark takes a channel's watermark. advanced says that the output rose to out.
func (v *Valve) OnWatermark(channel int, ts int64) (out int64, advanced bool) {
	c := &v.channels[channel]
	if ts <= c.watermark {
		return v.out, false
	}
	c.watermark = ts
	return v.combine()
}

// OnIdle takes a channel's change between idle and active. changed says that the whole became idle or active; advanced that the output
// rose, because the channel that held it back is idle.
func (v *Valve) OnIdle(channel int, idle bool) (out int64, advanced, nowIdle, changed bool) {
	v.channels[channel].idle = idle
	all := true
	for i := range v.channels {
		if c := &v.channels[i]; !c.idle && c.watermark != MaxWatermark {
			all = false
			break
		}
	}
	out, advanced = v.combine()
	if all != v.idle {
		v.idle, changed = all, true
	}
	return out, advanced, v.idle, changed
}

func (v *Valve) combine() (int64, bool) {
	least, most, ended := MaxWatermark, MinWatermark, true
	for i := range v.channels {
		c := &v.channels[i]
		if c.watermark == MaxWatermark {
			continue
		}
		ended = false
		most = max(most, c.watermark)
		if !c.idle {
			least = min(least, c.watermark)
		}
	}
	if !ended && least == MaxWatermark { // all that did not end are idle
		least = most
	}
	if least > v.out {
		v.out = least
		return v.out, true
	}
	return v.out, false
}
