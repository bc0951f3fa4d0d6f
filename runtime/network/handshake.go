package network

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// keepAlive makes the kernel look after a connection with nothing under way.
func (e *Environment) keepAlive() net.KeepAliveConfig {
	third := max(e.cfg.PeerTimeout/3, time.Second) // the least that the kernel knows
	return net.KeepAliveConfig{Enable: true, Idle: third, Interval: third, Count: 2}
}

// attend makes the kernel end a connection whose other end is gone, or cut off, without a word.
func (e *Environment) attend(c net.Conn) {
	tc, ok := c.(*net.TCPConn)
	if !ok {
		return
	}
	if err := errors.Join(tc.SetKeepAliveConfig(e.keepAlive()), boundSilence(tc, e.cfg.PeerTimeout)); err != nil {
		e.log.Warn().Err(err).Msg("a data connection whose other end is gone may not be noticed")
	}
}

func (e *Environment) mac(side string, client, server []byte) []byte {
	m := hmac.New(sha256.New, e.cfg.Token)
	m.Write([]byte(side))
	m.Write(client)
	m.Write(server)
	return m.Sum(nil)
}

// expectFrame reads one frame, which is of the given kind or a Fail, into a fresh slice.
func expectFrame(r io.Reader, kind frameKind, maxFrame int) ([]byte, error) {
	var hb [headerSize]byte
	if _, err := io.ReadFull(r, hb[:]); err != nil {
		return nil, err
	}
	h, err := decodeHeader(&hb, maxFrame)
	if err != nil {
		return nil, err
	}
	if h.kind != kind && h.kind != frameFail {
		return nil, fmt.Errorf("frame of kind %d, want %d", h.kind, kind)
	}
	b := make([]byte, h.length)
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, err
	}
	if h.kind == frameFail {
		_, err := decodeFail(b)
		return nil, fmt.Errorf("the peer refused: %w", err)
	}
	return b, nil
}

var errToken = errors.New("the peer does not know this job's secret; it belongs to another job or application")

// greet is the consumer's half of the handshake.
func (e *Environment) greet(c net.Conn, r io.Reader) error {
	hello := appendHeader(nil, header{length: helloSize, kind: frameHello})
	hello = binary.BigEndian.AppendUint32(hello, wireMagic)
	hello = binary.BigEndian.AppendUint16(hello, wireVersion)
	nonce := make([]byte, nonceSize)
	_, _ = rand.Read(nonce) // never fails, crypto/rand's contract
	if _, err := c.Write(append(hello, nonce...)); err != nil {
		return err
	}
	b, err := expectFrame(r, frameChallenge, e.cfg.MaxFrame)
	if err != nil {
		return err
	}
	if v := binary.BigEndian.Uint16(b); v != wireVersion {
		return versionError(v)
	}
	server := b[2 : 2+nonceSize]
	if !hmac.Equal(b[2+nonceSize:], e.mac("producer", nonce, server)) {
		return errToken
	}
	proof := appendHeader(nil, header{length: macSize, kind: frameProof})
	_, err = c.Write(append(proof, e.mac("consumer", nonce, server)...))
	return err
}

// welcome is the producer's half of the handshake.
func (e *Environment) welcome(c net.Conn, r io.Reader) error {
	b, err := expectFrame(r, frameHello, 0)
	if err != nil {
		return err
	}
	if binary.BigEndian.Uint32(b) != wireMagic {
		return errors.New("not a Thalweg data connection")
	}
	if v := binary.BigEndian.Uint16(b[4:]); v != wireVersion {
		return versionError(v)
	}
	client := b[6:]
	server := make([]byte, nonceSize)
	_, _ = rand.Read(server)
	out := appendHeader(nil, header{length: challenge, kind: frameChallenge})
	out = binary.BigEndian.AppendUint16(out, wireVersion)
	out = append(append(out, server...), e.mac("producer", client, server)...)
	if _, err := c.Write(out); err != nil {
		return err
	}
	b, err = expectFrame(r, frameProof, 0)
	if err != nil {
		return err
	}
	if !hmac.Equal(b, e.mac("consumer", client, server)) {
		return errToken
	}
	return nil
}

func versionError(v uint16) error {
	return fmt.Errorf("the peer speaks version %d of the exchange, this worker version %d: run all workers of a job from one binary", v, wireVersion)
}
