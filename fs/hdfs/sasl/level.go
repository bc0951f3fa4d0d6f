package sasl

import (
	"fmt"
	"strings"

	"github.com/thalweg/thalweg/yarnrpc/ipc/digestmd5"
)

// KeyProtection is the key of Hadoop's configuration that lists the levels.
const KeyProtection = "dfs.data.transfer.protection"

// Level is how a connection is protected, by Hadoop's name.
type Level string

// The levels, each with all of the one before.
const (
	Authentication Level = "authentication"
	Integrity      Level = "integrity"
	Privacy        Level = "privacy"
)

// qop is SASL's name.
func (l Level) qop() digestmd5.QOP {
	switch l {
	case Integrity:
		return digestmd5.QOPInt
	case Privacy:
		return digestmd5.QOPConf
	default:
		return digestmd5.QOPAuth
	}
}

// ParseLevels reads a list such as "privacy,integrity" in order of preference. An empty one is no protection.
func ParseLevels(list string) ([]Level, error) {
	var out []Level
	for word := range strings.SplitSeq(list, ",") {
		word = strings.TrimSpace(word)
		switch l := Level(strings.ToLower(word)); l {
		case "":
		case Authentication, Integrity, Privacy:
			out = append(out, l)
		default:
			return nil, fmt.Errorf("want authentication, integrity, privacy or a list of them, got %q", word)
		}
	}
	return out, nil
}
