package digestmd5

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"strings"
)

func newNonce() string {
	var b [24]byte
	_, _ = rand.Read(b[:]) // never fails, by its contract
	return base64.StdEncoding.EncodeToString(b[:])
}

func quote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}

func splitList(s string) []string {
	var out []string
	for p := range strings.SplitSeq(s, ",") {
		if p = strings.TrimSpace(p); p != "" {
			out = append(out, p)
		}
	}
	return out
}

type directive struct{ key, value string }

// parse splits a message into its directives: key=token or key="quoted string", separated by commas, with white space
// and empty elements allowed between them.
func parse(b []byte) ([]directive, error) {
	if len(b) > maxMessage {
		return nil, fmt.Errorf("%w: %d bytes", ErrMalformed, len(b))
	}
	var out []directive
	i := 0
	for {
		for i < len(b) && (b[i] == ',' || isSpace(b[i])) {
			i++
		}
		if i == len(b) {
			return out, nil
		}
		start := i
		for i < len(b) && b[i] != '=' && b[i] != ',' && !isSpace(b[i]) {
			i++
		}
		key := strings.ToLower(string(b[start:i]))
		for i < len(b) && isSpace(b[i]) {
			i++
		}
		if key == "" || i == len(b) || b[i] != '=' {
			return nil, fmt.Errorf("%w: directive without value", ErrMalformed)
		}
		i++
		for i < len(b) && isSpace(b[i]) {
			i++
		}
		var value []byte
		if i < len(b) && b[i] == '"' {
			i++
			closed := false
			for i < len(b) && !closed {
				switch {
				case b[i] == '"':
					closed = true
				case b[i] == '\\' && i+1 < len(b):
					i++
					value = append(value, b[i])
				default:
					value = append(value, b[i])
				}
				i++
			}
			if !closed {
				return nil, fmt.Errorf("%w: open quote", ErrMalformed)
			}
		} else {
			start = i
			for i < len(b) && b[i] != ',' && !isSpace(b[i]) {
				i++
			}
			value = b[start:i]
		}
		out = append(out, directive{key, string(value)})
		for i < len(b) && isSpace(b[i]) {
			i++
		}
		if i < len(b) && b[i] != ',' {
			return nil, fmt.Errorf("%w: no comma between directives", ErrMalformed)
		}
	}
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }
