package kerberos

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jcmturner/gokrb5/v8/iana/errorcode"
	"github.com/jcmturner/gokrb5/v8/messages"
)

const (
	kdcPort    = "88"
	udpWait    = 2 * time.Second // for one answer; a request is sent again by TCP then
	tcpWait    = 5 * time.Second
	maxUDP     = 64 << 10
	maxKDCSize = 1 << 20 // of an answer, bytes
)

// kdc is one server of a realm.
type kdc struct {
	addr     string // host:port
	protocol string // "tcp", "udp", or empty for both
}

// parseKDC reads host, host:port, [IPv6]:port, each with tcp/ or udp/ before it.
func parseKDC(s string) (kdc, error) {
	var k kdc
	rest := strings.TrimSpace(strings.TrimSuffix(s, "*"))
	for _, p := range []string{"tcp", "udp"} {
		if r, ok := strings.CutPrefix(rest, p+"/"); ok {
			k.protocol, rest = p, r
		}
	}
	switch {
	case rest == "" || strings.ContainsAny(rest, "/ \t"):
		return k, fmt.Errorf("kdc = %s: want host:port, with tcp/ or udp/ before it if need be", s)
	case strings.HasPrefix(rest, "[") && strings.HasSuffix(rest, "]"):
		k.addr = net.JoinHostPort(rest[1:len(rest)-1], kdcPort)
	case strings.Count(rest, ":") == 1 || strings.HasPrefix(rest, "["):
		host, port, err := net.SplitHostPort(rest)
		if n, perr := strconv.Atoi(port); err != nil || perr != nil || n < 1 || n > 65535 {
			return k, fmt.Errorf("kdc = %s: want host:port", s)
		}
		k.addr = net.JoinHostPort(host, port)
	default:
		k.addr = net.JoinHostPort(rest, kdcPort)
	}
	return k, nil
}

// UnreachableError says that no KDC of a realm has answered. It may be worth another try later.
type UnreachableError struct {
	Realm string
	Where string   // configuration files
	Tried []string // one line for each attempt
}

// Error names the realm and each attempt.
func (e *UnreachableError) Error() string {
	if len(e.Tried) == 0 {
		return fmt.Sprintf("kerberos: no KDC of realm %s is known: add kdc = host:port for it to [realms] in %s", e.Realm, e.Where)
	}
	return fmt.Sprintf("kerberos: no KDC of realm %s answers: %s: check kdc in %s, and that one of them runs", e.Realm, strings.Join(e.Tried, "; "), e.Where)
}

// send puts a request to the KDCs of a realm until one answers: the one that answered last first, then as the configuration
// lists them. Each is asked by both protocols, unless it is listed for one of them.
//
// Errors: messages.KRBError, *UnreachableError, the context's.
func (c *Config) send(ctx context.Context, realm string, request []byte) ([]byte, error) {
	kdcs, err := c.kdcs(ctx, realm)
	if err != nil {
		return nil, err
	}
	unreachable := &UnreachableError{Realm: realm, Where: c.where()}
	for _, k := range kdcs {
		protocols := []string{"udp", "tcp"}
		if len(request) > c.udpLimit {
			protocols = []string{"tcp", "udp"}
		}
		if k.protocol != "" {
			protocols = []string{k.protocol}
		}
		for _, p := range protocols {
			answer, err := ask(ctx, p, k.addr, request)
			if ctx.Err() != nil {
				return nil, fmt.Errorf("kerberos: ask the KDC of realm %s at %s: %w", realm, k.addr, ctx.Err())
			}
			var refusal messages.KRBError
			if err == nil && refusal.Unmarshal(answer) == nil {
				switch refusal.ErrorCode {
				case errorcode.KRB_ERR_RESPONSE_TOO_BIG:
					err = errors.New("the answer is too long for UDP")
				case errorcode.KDC_ERR_SVC_UNAVAILABLE:
					err = errors.New("the KDC says that it is not available")
				default:
					c.remember(realm, k)
					return nil, refusal
				}
			}
			if err == nil {
				c.remember(realm, k)
				return answer, nil
			}
			unreachable.Tried = append(unreachable.Tried, fmt.Sprintf("%s by %s: %v", k.addr, p, err))
		}
	}
	return nil, unreachable
}

func (c *Config) remember(realm string, k kdc) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last[realm] = k
}

// kdcs lists the KDCs of a realm, from DNS when the configuration has none.
func (c *Config) kdcs(ctx context.Context, realm string) ([]kdc, error) {
	list := slices.Clone(c.realms[realm])
	if len(list) == 0 && c.dnsKDC {
		for _, p := range []string{"udp", "tcp"} {
			_, srv, err := net.DefaultResolver.LookupSRV(ctx, "kerberos", p, realm)
			if err != nil {
				continue
			}
			for _, s := range srv {
				list = append(list, kdc{net.JoinHostPort(strings.TrimSuffix(s.Target, "."), strconv.Itoa(int(s.Port))), p})
			}
		}
	}
	if len(list) == 0 {
		return nil, &UnreachableError{Realm: realm, Where: c.where()}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.Index(list, c.last[realm]); i > 0 {
		list = slices.Insert(slices.Delete(list, i, i+1), 0, c.last[realm])
	}
	return list, nil
}

// ask sends one request to one KDC. Over TCP, messages follow their length as 4 bytes. Source: RFC 4120 section 7.2.
func ask(ctx context.Context, protocol, addr string, request []byte) ([]byte, error) {
	wait := tcpWait
	if protocol == "udp" {
		wait = udpWait
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	nc, err := (&net.Dialer{}).DialContext(ctx, protocol, addr)
	if err != nil {
		return nil, plain(err)
	}
	defer func() { _ = nc.Close() }()
	defer context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })()
	if protocol == "udp" {
		if _, err := nc.Write(request); err != nil {
			return nil, plain(err)
		}
		b := make([]byte, maxUDP)
		n, err := nc.Read(b)
		return b[:n], plain(err)
	}
	framed := append(binary.BigEndian.AppendUint32(nil, uint32(len(request))), request...) //nolint:gosec // short
	if _, err := nc.Write(framed); err != nil {
		return nil, plain(err)
	}
	var head [4]byte
	if _, err := io.ReadFull(nc, head[:]); err != nil {
		return nil, plain(err)
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > maxKDCSize {
		return nil, fmt.Errorf("it announces %d bytes, which is no KDC's answer", n)
	}
	b := make([]byte, n)
	_, err = io.ReadFull(nc, b)
	return b, plain(err)
}

// plain drops the addresses that the errors of package net repeat.
func plain(err error) error {
	var op *net.OpError
	var ne net.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &ne) && ne.Timeout():
		return errors.New("no answer")
	case errors.As(err, &op):
		return op.Err
	}
	return err
}
