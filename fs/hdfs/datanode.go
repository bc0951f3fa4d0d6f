package hdfs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/thalweg/thalweg/fs/hdfs/hdfspb"
	"github.com/thalweg/thalweg/fs/hdfs/sasl"
	commonpb "github.com/thalweg/thalweg/yarnrpc/proto/common"
)

// maxUnanswered is after how many connections that DataNodes of a secured cluster have ended at their beginning it is taken for a mismatch
// of the protection, when none was ever answered. One that dies does so for a moment, and refuses then.
const maxUnanswered = 5

// datanodeError is what went wrong between us and a DataNode; another one may do.
type datanodeError struct {
	addr   string
	status hdfspb.Status // SUCCESS when the DataNode did not say
	err    error
}

func (e *datanodeError) Error() string { return "data node " + e.addr + ": " + e.err.Error() }
func (e *datanodeError) Unwrap() error { return e.err }

func statusError(addr string, s hdfspb.Status, message string) error {
	text := "answered " + s.String()
	if message != "" {
		text += ": " + message
	}
	err := errors.New(text)
	if s == hdfspb.Status_ERROR_ACCESS_TOKEN {
		err = fmt.Errorf("%s: %w", text, sasl.ErrToken)
	}
	return &datanodeError{addr: addr, status: s, err: err}
}

func (f *FileSystem) datanodeAddr(d *hdfspb.DatanodeInfoProto) string {
	h := d.GetId().GetIpAddr()
	if f.cfg.UseDatanodeHostname {
		h = d.GetId().GetHostName()
	}
	return net.JoinHostPort(h, strconv.FormatUint(uint64(d.GetId().GetXferPort()), 10))
}

// transfer is a connection to a DataNode, which serves one operation on one block.
type transfer struct {
	nc      net.Conn
	r       *bufio.Reader
	addr    string
	timeout time.Duration
	ctx     context.Context //nolint:containedctx // it is the life of the operation
	stops   [2]func() bool
}

// dialDatanode connects and sends the operation. The connection breaks when ctx or the FileSystem ends. An encryption key that the
// DataNode does not know any more is replaced once.
func (f *FileSystem) dialDatanode(ctx context.Context, d *hdfspb.DatanodeInfoProto, token *commonpb.TokenProto, op byte, m proto.Message) (*transfer, *hdfspb.BlockOpResponseProto, error) {
	for again := true; ; again = false {
		p, err := f.protection(ctx, d, token)
		if err != nil {
			return nil, nil, err
		}
		t, resp, err := f.dialProtected(ctx, d, p, op, m)
		if again && errors.Is(err, sasl.ErrUnknownKey) {
			f.forgetKey(p.key)
			continue
		}
		return t, resp, err
	}
}

func (f *FileSystem) dialProtected(ctx context.Context, d *hdfspb.DatanodeInfoProto, p protection, op byte, m proto.Message) (*transfer, *hdfspb.BlockOpResponseProto, error) {
	addr := f.datanodeAddr(d)
	dctx, cancel := context.WithTimeout(ctx, f.cfg.ConnectTimeout)
	defer cancel()
	raw, err := f.cfg.Dial(dctx, "tcp", addr)
	if err != nil {
		return nil, nil, &datanodeError{addr: addr, err: err}
	}
	t := &transfer{nc: raw, addr: addr, timeout: f.cfg.IOTimeout, ctx: ctx}
	t.stops[0] = context.AfterFunc(ctx, func() { _ = raw.Close() })
	t.stops[1] = context.AfterFunc(f.ctx, func() { _ = raw.Close() })
	resp, err := t.begin(dctx, p, op, m)
	if err == nil {
		f.answered.Store(true)
	} else if sasl.Ended(err) && f.cfg.kerberos && !f.answered.Load() && f.unanswered.Add(1) >= maxUnanswered {
		err = fmt.Errorf("%w: %w", sasl.ErrProtection, err)
	}
	if err != nil {
		t.close()
		return nil, nil, t.fail(err)
	}
	if resp.GetStatus() != hdfspb.Status_SUCCESS {
		t.close()
		return nil, resp, statusError(addr, resp.GetStatus(), resp.GetMessage())
	}
	return t, resp, nil
}

func (t *transfer) begin(dctx context.Context, p protection, op byte, m proto.Message) (*hdfspb.BlockOpResponseProto, error) {
	if len(p.levels) > 0 {
		if deadline, ok := dctx.Deadline(); ok {
			_ = t.nc.SetDeadline(deadline)
		}
		protected, err := sasl.Client(t.nc, p.credential, p.levels)
		if err != nil {
			return nil, err
		}
		t.nc = protected
	}
	b, err := encodeOp(op, m)
	if err != nil {
		return nil, err
	}
	t.touch()
	if _, err := t.nc.Write(b); err != nil {
		return nil, err
	}
	t.r = bufio.NewReaderSize(t.nc, 64<<10)
	resp := &hdfspb.BlockOpResponseProto{}
	err = readDelimited(t.r, resp)
	if sasl.Ended(err) && len(p.levels) == 0 {
		err = fmt.Errorf("%w without an answer (when this goes on, the data node expects protection: set %s as the cluster has it)", err, sasl.KeyProtection)
	}
	return resp, err
}

// touch gives the connection another timeout's worth of silence.
func (t *transfer) touch() { _ = t.nc.SetDeadline(time.Now().Add(t.timeout)) }

// fail prefers the end of the context to the broken connection that follows from it.
func (t *transfer) fail(err error) error {
	if cerr := t.ctx.Err(); cerr != nil {
		return cerr
	}
	var dn *datanodeError
	if errors.As(err, &dn) {
		return err
	}
	var ne net.Error
	if errors.As(err, &ne) && ne.Timeout() {
		err = fmt.Errorf("no answer within %s", t.timeout)
	}
	return &datanodeError{addr: t.addr, err: err}
}

func (t *transfer) close() {
	for _, stop := range t.stops {
		stop()
	}
	_ = t.nc.Close()
}
