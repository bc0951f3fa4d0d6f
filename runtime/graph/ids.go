package graph

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// ID is a 128-bit identifier, written as 32 hex digits as Flink does.
type ID [16]byte

func (id ID) String() string               { return hex.EncodeToString(id[:]) }
func (id ID) IsZero() bool                 { return id == ID{} }
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText parses 32 hex digits.
func (id *ID) UnmarshalText(b []byte) error {
	p, err := ParseID(string(b))
	if err == nil {
		*id = p
	}
	return err
}

// ParseID parses 32 hex digits.
func ParseID(s string) (ID, error) {
	var id ID
	if len(s) != 32 {
		return id, fmt.Errorf("graph: parse id %q: want 32 hex digits", s)
	}
	if _, err := hex.Decode(id[:], []byte(s)); err != nil {
		return id, fmt.Errorf("graph: parse id %q: %w", s, err)
	}
	return id, nil
}

// NewID returns a random ID.
func NewID() ID {
	var id ID
	_, _ = rand.Read(id[:]) // never fails, crypto/rand's contract
	return id
}

// JobID, VertexID and OperatorID are IDs of different things; a vertex has the id of its head operator.
type (
	JobID      struct{ ID }
	VertexID   struct{ ID }
	OperatorID struct{ ID }
)

// ExecutionID names one attempt of one subtask. Its text form is "<vertex>_<subtask>_<attempt>".
type ExecutionID struct {
	Vertex  VertexID
	Subtask int
	Attempt int
}

func (e ExecutionID) String() string {
	return e.Vertex.String() + "_" + strconv.Itoa(e.Subtask) + "_" + strconv.Itoa(e.Attempt)
}

// ParseExecutionID is the inverse of String.
func ParseExecutionID(s string) (ExecutionID, error) {
	p := strings.Split(s, "_")
	if len(p) != 3 {
		return ExecutionID{}, fmt.Errorf("graph: parse execution id %q: want vertex_subtask_attempt", s)
	}
	id, err := ParseID(p[0])
	if err != nil {
		return ExecutionID{}, err
	}
	sub, err1 := strconv.Atoi(p[1])
	att, err2 := strconv.Atoi(p[2])
	if err1 != nil || err2 != nil || sub < 0 || att < 0 {
		return ExecutionID{}, fmt.Errorf("graph: parse execution id %q: bad numbers", s)
	}
	return ExecutionID{Vertex: VertexID{id}, Subtask: sub, Attempt: att}, nil
}
