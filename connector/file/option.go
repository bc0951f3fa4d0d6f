package file

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/thalweg/thalweg/fs"
)

// SourceOption configures a source.
type SourceOption func(*sourceConfig)

type sourceConfig struct {
	paths     []string
	match     string
	monitor   time.Duration // 0: bounded
	splitSize int64
	header    bool
	skipBad   bool
	maxLine   int
	errs      []error
}

// Paths adds files and folders: absolute paths, or URIs such as hdfs:///in. Folders are read with all that is below them, except for names
// that begin with . or _. What follows a URI's host is the path letter for letter, as for Hadoop: '%', '#' and '?' stand for themselves. A file whose name ends in .gz is unpacked, and not split.
func Paths(uris ...string) SourceOption {
	return func(c *sourceConfig) {
		for _, u := range uris {
			if err := checkURI(u); err != nil {
				c.errs = append(c.errs, fmt.Errorf("file.Paths: %w", err))
			}
		}
		c.paths = append(c.paths, uris...)
	}
}

func checkURI(u string) error {
	p, err := fs.Parse(u)
	switch {
	case err != nil:
		return err
	case p.Scheme == "":
		return fmt.Errorf("%q is neither an absolute path nor a URI: a job's processes run in other folders", u)
	case strings.Contains(u, "\x00"):
		return fmt.Errorf("%q is not a path", u)
	}
	return nil
}

// Match keeps only those files of the folders whose names match a pattern of path.Match, such as "*.csv".
func Match(pattern string) SourceOption {
	return func(c *sourceConfig) {
		if _, err := path.Match(pattern, "x"); err != nil {
			c.errs = append(c.errs, fmt.Errorf("file.Match: pattern %q: %w", pattern, err))
		}
		c.match = pattern
	}
}

// Monitor makes the source unbounded: its paths are listed again each interval, and files that are new are read. A file is taken when two
// listings show it with the same size and time; best move complete files into the folder. The names of all files are kept in the state.
func Monitor(interval time.Duration) SourceOption {
	return func(c *sourceConfig) {
		if interval <= 0 {
			c.errs = append(c.errs, fmt.Errorf("file.Monitor: interval is %v: it must be positive", interval))
		}
		c.monitor = interval
	}
}

// SplitSize cuts files into ranges of about so many bytes, 64 MiB by default.
func SplitSize(bytes int64) SourceOption {
	return func(c *sourceConfig) {
		if bytes <= 0 {
			c.errs = append(c.errs, fmt.Errorf("file.SplitSize: %d bytes: it must be positive", bytes))
		}
		c.splitSize = bytes
	}
}

// SkipHeader leaves out the first line of each file.
func SkipHeader() SourceOption { return func(c *sourceConfig) { c.header = true } }

// SkipBadRecords counts records that cannot be decoded (recordsSkipped) instead of failing the job.
func SkipBadRecords() SourceOption { return func(c *sourceConfig) { c.skipBad = true } }

// MaxLine is the longest line that is read, in bytes, 64 MiB by default; a longer one fails the job.
func MaxLine(bytes int) SourceOption {
	return func(c *sourceConfig) {
		if bytes <= 0 {
			c.errs = append(c.errs, fmt.Errorf("file.MaxLine: %d bytes: it must be positive", bytes))
		}
		c.maxLine = bytes
	}
}

func (c *sourceConfig) validate() error {
	errs := c.errs
	if len(c.paths) == 0 {
		errs = append(errs, errors.New("file: the source has no path: give file.Paths"))
	}
	return errors.Join(errs...)
}

// SinkOption configures a sink.
type SinkOption func(*sinkConfig)

type sinkConfig struct {
	dir            string
	prefix, suffix string
	header         string
	rollSize       int64
	rollInterval   time.Duration
	bucket         any // func(T) string
	layout         string
	eventTime      bool
	errs           []error
}

// Directory is where the parts go: an absolute path, or a URI such as hdfs:///out.
func Directory(uri string) SinkOption {
	return func(c *sinkConfig) {
		if err := checkURI(uri); err != nil {
			c.errs = append(c.errs, fmt.Errorf("file.Directory: %w", err))
		}
		c.dir = uri
	}
}

// Prefix begins the names of parts, "part" by default: <prefix>-<subtask>-<run>-<number><suffix>.
func Prefix(s string) SinkOption {
	return func(c *sinkConfig) { c.prefix = c.name("file.Prefix", s) }
}

// Suffix ends the names of parts, such as ".json".
func Suffix(s string) SinkOption {
	return func(c *sinkConfig) { c.suffix = c.name("file.Suffix", s) }
}

func (c *sinkConfig) name(option, s string) string {
	if strings.ContainsAny(s, "/\x00") {
		c.errs = append(c.errs, fmt.Errorf("%s: %q is not a part of a file's name", option, s))
	}
	return s
}

// Header is the first line of each part, without its end.
func Header(line string) SinkOption {
	return func(c *sinkConfig) {
		if strings.Contains(line, "\n") || strings.HasSuffix(line, "\r") {
			c.errs = append(c.errs, errors.New("file.Header: it must be one line"))
		}
		c.header = line
	}
}

// RollSize begins another part when one has so many bytes, 128 MiB by default. Each checkpoint does, too.
func RollSize(bytes int64) SinkOption {
	return func(c *sinkConfig) {
		if bytes <= 0 {
			c.errs = append(c.errs, fmt.Errorf("file.RollSize: %d bytes: it must be positive", bytes))
		}
		c.rollSize = bytes
	}
}

// RollInterval begins another part with the first record after a part is so old, 1 minute by default. It shows in jobs without checkpoints, whose parts are
// put in place when they are rolled.
func RollInterval(d time.Duration) SinkOption {
	return func(c *sinkConfig) {
		if d <= 0 {
			c.errs = append(c.errs, fmt.Errorf("file.RollInterval: %v: it must be positive", d))
		}
		c.rollInterval = d
	}
}

// BucketBy gives each record the folder below the sink's directory that fn names, such as "country=de". T is the sink's record type.
// Every bucket in use is an open file until the next checkpoint.
func BucketBy[T any](fn func(T) string) SinkOption {
	return func(c *sinkConfig) {
		if fn == nil {
			c.errs = append(c.errs, errors.New("file.BucketBy: no function"))
		}
		c.bucket = fn
	}
}

// BucketByEventTime gives each record the folder named by its event time, in UTC, in a layout of package time such as "2006-01-02--15". A
// record without event time fails the job.
func BucketByEventTime(layout string) SinkOption {
	return func(c *sinkConfig) { c.layout, c.eventTime = layout, true }
}

// BucketByProcessingTime is the same with the time when the record is written.
func BucketByProcessingTime(layout string) SinkOption {
	return func(c *sinkConfig) { c.layout = layout }
}

func (c *sinkConfig) validate() error {
	errs := c.errs
	if c.dir == "" {
		errs = append(errs, errors.New("file: the sink has no directory: give file.Directory"))
	}
	if c.bucket != nil && c.layout != "" {
		errs = append(errs, errors.New("file: BucketBy and a bucket by time exclude each other"))
	}
	return errors.Join(errs...)
}
