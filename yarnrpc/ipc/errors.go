package ipc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	commonpb "github.com/thalweg/thalweg/yarnrpc/proto/common"
)

// Class is a Java exception class as a sentinel: errors.Is(err, ipc.Class("java.io.IOException")) is true when err
// wraps a *RemoteError of exactly that class. Packages that know more classes declare their own.
type Class string

// Error returns the class name.
func (c Class) Error() string { return string(c) }

// Classes that every Hadoop server may throw.
const (
	ErrStandby         = Class("org.apache.hadoop.ipc.StandbyException")
	ErrObserverRetry   = Class("org.apache.hadoop.ipc.ObserverRetryOnActiveException")
	ErrRetriable       = Class("org.apache.hadoop.ipc.RetriableException")
	ErrAccessControl   = Class("org.apache.hadoop.security.AccessControlException")
	ErrAuthorization   = Class("org.apache.hadoop.security.authorize.AuthorizationException")
	ErrInvalidToken    = Class("org.apache.hadoop.security.token.SecretManager$InvalidToken")
	ErrNoSuchMethod    = Class("org.apache.hadoop.ipc.RpcNoSuchMethodException")
	ErrNoSuchProtocol  = Class("org.apache.hadoop.ipc.RpcNoSuchProtocolException")
	ErrFileNotFound    = Class("java.io.FileNotFoundException")
	ErrJavaIO          = Class("java.io.IOException")
	ErrVersionMismatch = Class("org.apache.hadoop.ipc.RPC$VersionMismatch")
)

// ErrTimeout says that the server gave no answer within the time of one attempt (CallTimeout, ConnectTimeout) while the
// caller's own context still had time. It is retriable, unlike the end of the caller's context.
var ErrTimeout = errors.New("no answer in time")

// ErrClosed is returned by calls on a client after Close.
var ErrClosed = errors.New("ipc: client is closed")

// ErrNoMechanism says that the server offers no way to authenticate that this client has: typically a missing token, or
// a secure cluster met without Kerberos. Retrying does not help.
var ErrNoMechanism = errors.New("no common way to authenticate")

// ErrLogin is wrapped by errors about our own credentials: a ticket that ended, a keytab without the principal, a clock
// that is wrong. Retrying does not help before somebody acted.
var ErrLogin = errors.New("cannot log in")

// RemoteError is an exception thrown by the server.
type RemoteError struct {
	Class   string // Java class, "org.apache.hadoop.security.AccessControlException"
	Message string // the exception's message as Java printed it, without class prefix and stack
	Stack   string // Java stack trace, empty when the server sent none
	Method  string // method called, empty when the connection itself was refused
	// Code is the server's own classification; zero when it gave none.
	Code commonpb.RpcResponseHeaderProto_RpcErrorCodeProto
	// Fatal is true when the server closed the connection with this error.
	Fatal bool
}

// Error is "class: message" with the short class name.
func (e *RemoteError) Error() string {
	short := e.Class[strings.LastIndexByte(e.Class, '.')+1:]
	switch {
	case e.Message == "":
		return short
	case short == "":
		return e.Message
	}
	return short + ": " + e.Message
}

// Is reports whether target is the Class of e.
func (e *RemoteError) Is(target error) bool {
	c, ok := target.(Class)
	return ok && string(c) == e.Class
}

// NewRemoteError splits the text that a Hadoop server sends, which may be a message, or "class: message" followed by a stack.
func NewRemoteError(class, text, method string, code commonpb.RpcResponseHeaderProto_RpcErrorCodeProto, fatal bool) *RemoteError {
	msg, stack := text, ""
	if i := strings.Index(text, "\n\tat "); i >= 0 {
		msg, stack = text[:i], text[i+1:]
	}
	msg = strings.TrimPrefix(msg, class+": ")
	if msg == class {
		msg = ""
	}
	return &RemoteError{Class: class, Message: strings.TrimSpace(msg), Stack: stack, Method: method, Code: code, Fatal: fatal}
}

// ConnError is a failure of the connection, not of the call: the server may not have seen the call, or may have run it
// without the answer getting here.
type ConnError struct {
	Op   string // "dial", "authenticate", "call"
	Addr string // host:port
	Sent bool   // the request was handed to the operating system, so the server may have run it
	Err  error
}

// Error names operation and address.
func (e *ConnError) Error() string {
	return e.Op + " " + e.Addr + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *ConnError) Unwrap() error { return e.Err }

// Kind is what a caller may do about an error.
type Kind int

// The answers of Classify.
const (
	// Final: the same call will fail again; tell the user.
	Final Kind = iota
	// Retriable: the same call may succeed on the same server a little later.
	Retriable
	// Standby: this server is not the active one; the same call belongs to another.
	Standby
)

// String is the lower-case name.
func (k Kind) String() string {
	switch k {
	case Retriable:
		return "retriable"
	case Standby:
		return "standby"
	default:
		return "final"
	}
}

// Classify says whether calling again may help. Nil is Final.
//
// Source: hadoop-common RetryPolicies.FailoverOnNetworkExceptionRetry.
func Classify(err error) Kind {
	// The caller's own end comes first: whatever else went wrong, nobody waits for the result any more. A time-out of a
	// single attempt is not of this kind, it carries ErrTimeout and no context error.
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrClosed) {
		return Final
	}

	// A remote exception is the server's considered answer, so it decides before the connection's state does.
	var remote *RemoteError
	if errors.As(err, &remote) {
		return classifyRemote(remote)
	}

	// We hold no credential that the server accepts, or its bytes are not what we speak (another service on the port,
	// another version, an answer above our limit). None of that changes by asking again.
	if errors.Is(err, ErrNoMechanism) || errors.Is(err, ErrLogin) || errors.Is(err, ErrMalformed) || errors.Is(err, ErrTooLarge) {
		return Final
	}

	// No answer in time: the server is paused (garbage collection), overloaded, or cut off. It may come back, and
	// another server of the list may be well.
	if errors.Is(err, ErrTimeout) {
		return Retriable
	}

	// Refused, reset, unreachable, unresolved, closed in the middle: daemons restart, names appear late. Callers bound
	// the time by their context. Whether the call ran is unknown when ConnError.Sent is true; the same call id is sent
	// again with a higher retry count, which servers with a retry cache recognise, and YARN's calls are idempotent.
	var conn *ConnError
	var netErr net.Error
	if errors.As(err, &conn) || errors.As(err, &netErr) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, net.ErrClosed) {
		return Retriable
	}

	// Everything else is local (a request that cannot be encoded, a bug): it will be the same next time.
	return Final
}

func classifyRemote(e *RemoteError) Kind {
	switch Class(e.Class) {
	case ErrStandby, ErrObserverRetry:
		// The daemon is alive but passive, or an observer that sends writers to the active one: fail over now, the
		// other one of the pair is either active already or becoming so.
		return Standby
	case ErrRetriable:
		// The server itself asks for another try: start-up not finished, call queue full, safe mode that will end.
		return Retriable
	}
	// All other exceptions, authentication and authorisation among them, are decisions. They do not change by
	// repetition, and repeating a refused login may lock an account.
	return Final
}

func wrapCall(method, addr string, err error) error {
	var conn *ConnError
	if errors.As(err, &conn) { // has the address already
		return fmt.Errorf("ipc: %s: %w", method, err)
	}
	return fmt.Errorf("ipc: %s at %s: %w", method, addr, err)
}
