package stream

import (
	"strings"
	"testing"

	"github.com/thalweg/thalweg/config"
)

// owner is a sink that owns something.
type owner struct {
	*collect[int]
	what string
}

func (o owner) Owns() []string { return []string{"the prefix " + o.what} }

func TestSinksThatOwnTheSame(t *testing.T) {
	build := func(second string) error {
		_, err := program("owners", func(env *Environment) error {
			one, two := env.FromCollection(1), env.FromCollection(2)
			one.SinkTo(owner{&collect[int]{}, "a"})
			two.SinkTo(owner{&collect[int]{}, second})
			return nil
		}, config.Configuration{}, nil)
		return err
	}
	if err := build("b"); err != nil {
		t.Error(err)
	}
	if err := build("a"); err == nil || strings.Count(err.Error(), "own_test.go:") != 2 || !strings.Contains(err.Error(), "the prefix a is that of the sink at own_test.go:") {
		t.Errorf("got %v", err)
	}
}
