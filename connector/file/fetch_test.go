package file

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// A connection that breaks is no end of a file, however its error is made.
func TestOnlyTheEndIsTheEnd(t *testing.T) {
	for i, failure := range []error{io.EOF, io.ErrUnexpectedEOF, fmt.Errorf("read: %w", io.EOF), fmt.Errorf("read: %w", io.ErrUnexpectedEOF), errors.New("broken")} {
		for size := range 4 {
			r := io.MultiReader(strings.NewReader("abc"[:size]), iotest.ErrReader(failure))
			n, end, err := fill(r, make([]byte, 10))
			want := failure
			if i == 0 {
				want = nil
			}
			if n != size || end != (i == 0) || !errors.Is(err, want) {
				t.Errorf("%v behind %d bytes: %d, %v, %v", failure, size, n, end, err)
			}
		}
	}
	if n, end, err := fill(iotest.OneByteReader(strings.NewReader("abc")), make([]byte, 3)); n != 3 || end || err != nil {
		t.Errorf("a full buffer: %d, %v, %v", n, end, err)
	}
}
