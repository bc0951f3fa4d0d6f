package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

func TestAWaitIsNotSilent(t *testing.T) {
	synctest.Test(t, notSilent) // its clock goes on when all wait: the first failure is known before the message is due
}

func notSilent(t *testing.T) {
	lines := make(chan string, 10)
	p := newPatience(time.Millisecond, func(f string, a ...any) { lines <- fmt.Sprintf(f, a...) })
	var up bool
	dial := p.dial("the ResourceManager", "client.connection-timeout is 20s", func(context.Context, string, string) (net.Conn, error) {
		if up {
			c, _ := net.Pipe()
			return c, nil
		}
		return nil, errors.New("connection refused")
	})
	_, err := dial(t.Context(), "tcp", "rm:8032")
	if err == nil {
		t.Fatal("connected")
	}
	if got, want := <-lines, "still trying to reach the ResourceManager at rm:8032: connection refused (client.connection-timeout is 20s)"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	_, _ = dial(t.Context(), "tcp", "rm:8032") // is not told again
	up = true
	c, err := dial(t.Context(), "tcp", "rm:8032")
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	if got := <-lines; got != "the ResourceManager answers" {
		t.Errorf("%q", got)
	}
	// What answers at once is no news, and a wait that is called off neither.
	p.after = time.Hour
	if c, err = dial(t.Context(), "tcp", "rm:8032"); err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	p.began("it", "", "x")
	p.close()
	if len(lines) != 0 || len(p.waits) != 0 {
		t.Errorf("%d lines, %d waits", len(lines), len(p.waits))
	}
}
