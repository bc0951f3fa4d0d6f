package nexmark

import (
	"encoding/binary"
	"math"
	"math/big"
)

// rng is SplitMix64.
type rng uint64

const golden = 0x9e3779b97f4a7c15

func finish(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// mix is one step of SplitMix64 from state x.
func mix(x uint64) uint64 { return finish(x + golden) }

func (r *rng) next() uint64 {
	*r += golden
	return finish(uint64(*r))
}

// below is a number in [0, n), n below 2^31.
func (r *rng) below(n int64) int64 { return int64(r.next() >> 32 * uint64(n) >> 32) }

// letters appends k letters, 8 to a draw, lowest byte first: each 'a' + byte*26/256.
func (r *rng) letters(b []byte, k int64) []byte {
	const lanes = 0x00ff00ff00ff00ff
	end := len(b) + int(k)
	for len(b) < end {
		x := r.next()
		even := x & lanes * 26 >> 8 & lanes
		odd := x >> 8 & lanes * 26 &^ lanes
		b = binary.LittleEndian.AppendUint64(b, even|odd+0x6161616161616161)
	}
	return b[:end]
}

// price is round(10^(6u) * 100) for u uniform in [0, 1): the result of correctly rounded operations on doubles.
func (r *rng) price() int64 {
	y := float64(r.next()>>11) * 0x1p-53 * 6
	i := int(y * powers)
	d := (y - float64(i)/powers) * math.Ln10
	p := power[i].hi * (1 + d*(1+d*(1.0/2+d*(1.0/6+d*(1.0/24+d*(1.0/120+d/720)))))) * 100
	n := math.Floor(p)
	if f := p - n; f < 0.5-near || f > 0.5+near {
		return int64(math.Floor(p + 0.5))
	}
	return int64(math.Floor(float64(exactPower(i, y)*100) + 0.5))
}

// near is the distance from one half within which a price is computed with more digits: 1e8 doubles are 1.5e-8 apart.
const near = 1e-6

// powers is how many entries of power a factor of ten has.
const powers = 256

// double is a number with about 106 bits: hi is the nearest double.
type double struct{ hi, lo float64 }

// power[i] is 10^(i/powers).
var power = func() (t [6*powers + 1]double) {
	const bits = 256
	step := new(big.Float).SetPrec(bits).SetInt64(10)
	for n := powers; n > 1; n /= 2 {
		step.Sqrt(step)
	}
	x := new(big.Float).SetPrec(bits).SetInt64(1)
	for i := range t {
		hi, _ := x.Float64()
		lo, _ := new(big.Float).SetPrec(bits).Sub(x, new(big.Float).SetFloat64(hi)).Float64()
		t[i] = double{hi, lo}
		x.Mul(x, step)
	}
	return t
}()

// exactPower is 10^y rounded to the nearest double, i being int(y*powers).
func exactPower(i int, y float64) float64 {
	const bits = 200
	f := func(x float64) *big.Float { return new(big.Float).SetPrec(bits).SetFloat64(x) }
	ln10, _, _ := big.ParseFloat("2.302585092994045684017991454684364207601101488628772976033327900967572609677352480235997205", 10, bits, big.ToNearestEven)
	d := f(y - float64(i)/powers) // exact
	d.Mul(d, ln10)
	sum, term := f(1), f(1)
	for k := 1; k < 24; k++ {
		term.Mul(term, d)
		term.Quo(term, f(float64(k)))
		sum.Add(sum, term)
	}
	base := f(power[i].hi)
	base.Add(base, f(power[i].lo))
	p, _ := sum.Mul(sum, base).Float64()
	return p
}
