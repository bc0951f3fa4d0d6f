package file

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	iofs "io/fs"
	"strings"
	"time"

	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/fs"
)

// committable is a part that is closed and waits for its checkpoint. Wire form: JSON.
type committable struct {
	From string `json:"from"` // URIs
	To   string `json:"to"`
}

// runID tells apart the parts of two attempts.
func runID() string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails, by its contract
	return hex.EncodeToString(b[:])
}

// part is an open file.
type part struct {
	w     fs.Writer
	buf   []byte
	size  int64
	since time.Time
	c     committable
	path  string // of From, in its file system
}

// bufferSize is how much of a part is collected before it is written.
const bufferSize = 64 << 10

type writer[T any] struct {
	s       *sink[T]
	ctx     connector.SinkContext
	sys     systems
	files   fs.FileSystem
	root    string // the directory's path in files
	work    string // path of the folder of pending parts
	left    leftovers
	run     string
	next    int
	open    map[string]*part // by bucket
	pending []committable    // closed since the last checkpoint
	parts   connector.Counter
	line    []byte
}

func newWriter[T any](s *sink[T], ctx connector.SinkContext, restored [][]byte) (*writer[T], error) {
	w := &writer[T]{s: s, ctx: ctx, sys: systems{reg: ctx.Files}, run: runID(), open: map[string]*part{}, parts: ctx.Metrics.Counter("numFilesCreated")}
	f, root, err := w.sys.resolve(ctx.Context, s.cfg.dir)
	if err != nil {
		return nil, fmt.Errorf("file: sink directory: %w", err)
	}
	w.files, w.root = f, strings.TrimRight(root, "/")
	w.work = w.root + "/" + hidden + "/" + key(ctx)
	if w.left, err = newLeftovers(ctx, s.cfg, restored); err == nil {
		w.work = w.left.adopt(f, w.root, w.work)
		err = w.left.clean(&w.sys)
	}
	if err != nil {
		return nil, errors.Join(err, w.sys.close())
	}
	return w, nil
}

func decodeCommittable(b []byte) (committable, error) {
	var c committable
	if err := json.Unmarshal(b, &c); err != nil || c.From == "" || c.To == "" {
		return c, fmt.Errorf("file: committable %.200q is not valid", b)
	}
	return c, nil
}

func (w *writer[T]) bucket(v T, ts int64) (string, error) {
	c := w.s.cfg
	b := ""
	switch {
	case w.s.bucket != nil:
		b = w.s.bucket(v)
	case c.layout != "" && c.eventTime:
		if ts == connector.NoTimestamp {
			return "", errors.New("file: a record has no event time to find its bucket by (file.BucketByEventTime)")
		}
		b = time.UnixMilli(ts).UTC().Format(c.layout)
	case c.layout != "":
		b = time.Now().UTC().Format(c.layout)
	}
	if b == "" {
		return "", nil
	}
	if w.open[b] != nil {
		return b, nil
	}
	for name := range strings.SplitSeq(b, "/") {
		if name == "" || name == "." || name == ".." || name == hidden || strings.ContainsRune(name, 0) {
			return "", fmt.Errorf("file: %q is not a folder below the sink's directory", b)
		}
	}
	return b, nil
}

func (w *writer[T]) Write(v T, ts int64) error {
	b, err := w.bucket(v, ts)
	if err != nil {
		return err
	}
	if w.line, err = w.s.format.Serialize(w.line[:0], v); err != nil {
		return fmt.Errorf("file: encode a record as %s: %w", w.s.format.Name(), err)
	}
	if bytes.IndexByte(w.line, '\n') >= 0 {
		return fmt.Errorf("file: a record encoded as %s holds the end of a line: it would be read back as several", w.s.format.Name())
	}
	if bytes.HasSuffix(w.line, []byte{'\r'}) {
		return fmt.Errorf("file: a record encoded as %s ends with a carriage return: it would be read back without, as part of the line's end", w.s.format.Name())
	}
	p := w.open[b]
	if p != nil && (p.size >= w.s.cfg.rollSize || time.Since(p.since) >= w.s.cfg.rollInterval) {
		if err := w.roll(b, p); err != nil {
			return err
		}
		p = nil
	}
	if p == nil {
		if p, err = w.begin(b); err != nil {
			return err
		}
	}
	return w.append(p, w.line)
}

func (w *writer[T]) append(p *part, line []byte) error {
	p.buf = append(append(p.buf, line...), '\n')
	p.size += int64(len(line)) + 1
	if len(p.buf) < bufferSize {
		return nil
	}
	return w.write(p)
}

func (w *writer[T]) write(p *part) error {
	if len(p.buf) == 0 {
		return nil
	}
	_, err := p.w.Write(p.buf)
	p.buf = p.buf[:0]
	if err != nil {
		return fmt.Errorf("file: write %s: %w", p.c.From, err)
	}
	return nil
}

// begin opens a part in the folder of pending ones.
func (w *writer[T]) begin(bucket string) (*part, error) {
	c := w.s.cfg
	w.next++
	name := fmt.Sprintf("%d-%s-%d", w.ctx.Subtask, w.run, w.next)
	to := w.root
	if bucket != "" {
		to += "/" + bucket
	}
	to += "/" + c.prefix + "-" + name + c.suffix
	p := &part{since: time.Now(), path: w.work + "/" + name + w.left.mark, c: committable{To: uriOf(w.files, to)}}
	p.c.From = uriOf(w.files, p.path)
	var err error
	for range 3 { // another subtask may remove the folder as it ends
		if p.w, err = w.files.Create(w.ctx.Context, p.path, false); !errors.Is(err, iofs.ErrNotExist) {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("file: begin a part: %w", err)
	}
	w.open[bucket] = p
	w.parts.Add(1)
	if c.header != "" {
		return p, w.append(p, []byte(c.header))
	}
	return p, nil
}

// roll closes a part. It is committed with the next checkpoint, or at once when there are none.
func (w *writer[T]) roll(bucket string, p *part) error {
	delete(w.open, bucket)
	err := w.write(p)
	if err == nil {
		err = p.w.Close()
	}
	if err != nil {
		_ = p.w.Abort() // the first error is the one that counts
		return fmt.Errorf("file: close %s: %w", p.c.From, err)
	}
	if w.ctx.CheckpointingEnabled {
		w.pending = append(w.pending, p.c)
		return nil
	}
	there, err := commit(w.ctx.Context, &w.sys, p.c)
	if err == nil && !there {
		err = fmt.Errorf("file: %s is gone", p.c.From)
	}
	return err
}

// Flush hands everything to the file system; what it holds of a part is safe once the part is closed, in PrepareCommit.
func (w *writer[T]) Flush(context.Context, bool) error {
	for _, p := range w.open {
		if err := w.write(p); err != nil {
			return err
		}
	}
	return nil
}

// PrepareCommit closes all parts.
func (w *writer[T]) PrepareCommit(int64) ([][]byte, error) {
	for b, p := range w.open {
		if err := w.roll(b, p); err != nil {
			return nil, err
		}
	}
	var out [][]byte
	for _, c := range w.pending {
		b, err := json.Marshal(c)
		if err != nil {
			return nil, fmt.Errorf("file: encode a committable: %w", err)
		}
		out = append(out, b)
	}
	w.pending = nil
	return out, nil
}

// Committed looks again for what former runs left, when some of it could not be removed yet.
func (w *writer[T]) Committed(int64) {
	if err := w.left.again(&w.sys); err != nil {
		w.ctx.Logger.Warn().Err(err).Msg("parts that a former run left are not removed yet; trying again later")
	}
}

func (w *writer[T]) Snapshot(int64) ([][]byte, error) { return w.left.state() }

// Close gives up the parts that no checkpoint has seen, and tidies up.
func (w *writer[T]) Close() error {
	var errs []error
	for _, p := range w.open {
		errs = append(errs, p.w.Abort())
	}
	w.open = nil
	ctx, cancel := tidyContext(w.ctx.Context)
	defer cancel()
	for _, folder := range w.left.folders {
		tidy(ctx, &w.sys, folder)
	}
	return errors.Join(append(errs, w.sys.close())...)
}
