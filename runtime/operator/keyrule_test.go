package operator

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/thalweg/thalweg/serde"
)

// halfCodec is a codec of a program's own: it leaves the second half out. It counts what it decodes.
type halfCodec struct {
	serde.Codec[[2]int64]
	decoded *int
}

func (c halfCodec) Append(dst []byte, k [2]int64) []byte {
	return binary.BigEndian.AppendUint64(dst, uint64(k[0]))
}

func (c halfCodec) Decode(b []byte) (k [2]int64, n int, err error) {
	*c.decoded++
	k[0] = int64(binary.BigEndian.Uint64(b))
	return k, 8, nil
}

func (halfCodec) Lossy() bool { return true }

// Keys with a codec of the program's own are compared with what it decodes: the first ones, and then a few. It costs nothing for the others,
// and nothing at all for the engine's codecs.
func TestKeysAreDecodedAgainNowAndThen(t *testing.T) {
	decoded := 0
	a := newAgain[[2]int64](halfCodec{serde.Must[[2]int64](), &decoded})
	if n := testing.AllocsPerRun(10_000, func() {
		if err := a.verify("job.go:12", [2]int64{7, 0}); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations a key", n)
	}
	if most := keyChecksFirst + 10_001/keyCheckEvery; decoded < keyChecksFirst || decoded > most {
		t.Errorf("%d keys were decoded, want %d to %d", decoded, keyChecksFirst, most)
	}
	var err error
	for range keyCheckEvery {
		if err = a.verify("job.go:12", [2]int64{7, 1}); err != nil {
			break
		}
	}
	if err == nil || !strings.Contains(err.Error(), "KeyBy at job.go:12") {
		t.Errorf("a key that loses its half: %v", err)
	}
	if newAgain[[2]int64](serde.Must[[2]int64]()) != nil {
		t.Error("the engine's codec is checked")
	}
}
