package doctor

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	iofs "io/fs"
	"path"
	"time"

	"github.com/thalweg/thalweg/am/submit"
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/staging"
)

// Clocks that differ by more than maxSkew fail a Kerberos login; from warnSkew on, times in logs and pages mislead.
const (
	maxSkew  = 5 * time.Minute
	warnSkew = 30 * time.Second
)

// fileSystem looks at the folders that a job needs: whether it could write there, and what the file system's clock says.
func fileSystem(ctx context.Context, p *Patient) (all []Finding) {
	root, err := submit.Root(p.Config, p.Hadoop, p.User)
	if err != nil {
		return []Finding{Failure("staging folder", err)}
	}
	start := time.Now()
	at, err := p.writable(ctx, root)
	took := time.Since(start).Round(time.Millisecond)
	if err != nil {
		f := p.folder("staging folder", config.YarnStaging.Key, root, err)
		all = append(all, f)
		if errors.Is(err, fs.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
			return append(all, skipped("clock", f.Check), skipped("checkpoint folder", f.Check))
		}
	} else {
		all = append(all, good("staging folder", fmt.Sprintf("%s can be written (%s)", root, took)), p.clock(at))
	}
	for _, o := range []struct {
		check string
		of    *config.Option[string]
	}{{"checkpoint folder", config.CheckpointDir}, {"savepoint folder", config.SavepointDir}, {"high-availability folder", config.HADir}} {
		value := o.of.Value(p.Config)
		if value == "" {
			continue // below the staging folder, or asked for with each savepoint
		}
		uri, err := submit.Folder(o.of.Key, value, p.Hadoop)
		if err != nil {
			all = append(all, Failure(o.check, err))
			continue
		}
		if _, err := p.writable(ctx, uri); err != nil {
			all = append(all, p.folder(o.check, o.of.Key, uri, err))
			continue
		}
		all = append(all, good(o.check, uri+" can be written"))
	}
	return all
}

// folder says why a folder cannot be used.
func (p *Patient) folder(check, key, uri string, err error) Finding {
	switch {
	case errors.Is(err, fs.ErrSafeMode):
		return bad(check, "the file system of "+uri+" takes no writes: it is in safe mode", "`hdfs dfsadmin -safemode get` tells why; it ends when the DataNodes have reported enough blocks, or by `-safemode leave`")
	case errors.Is(err, fs.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		return bad(check, "the file system of "+uri+" does not answer: "+plain(err), "check the address, and that the NameNode runs")
	case errors.Is(err, iofs.ErrPermission):
		return bad(check, fmt.Sprintf("%s cannot be written by user %s", uri, p.User), "choose another with -D"+key+"=..., or change its permissions")
	case errors.Is(err, fs.ErrQuota):
		return bad(check, uri+" is full: "+plain(err), "have its quota raised, or choose another with -D"+key+"=...")
	}
	return bad(check, fmt.Sprintf("%s cannot be written: %s", uri, plain(err)), "choose another with -D"+key+"=...")
}

// writable writes a file into the folder, or into the lowest one above it that exists, and removes it. It returns the file's time.
func (p *Patient) writable(ctx context.Context, uri string) (at time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, p.Limit)
	defer cancel()
	f, dir, err := p.Files.Resolve(ctx, uri)
	if err != nil {
		return at, err
	}
	defer f.Close() //nolint:errcheck // nothing is open
	missing, err := staging.Missing(ctx, f, dir)
	if err != nil {
		return at, err
	}
	if len(missing) > 0 {
		dir = path.Dir(missing[0])
	}
	name := make([]byte, 8)
	_, _ = rand.Read(name) // never fails, by its contract
	probe := path.Join(dir, ".probe-"+hex.EncodeToString(name))
	defer func() {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		if rerr := f.Remove(last, probe, false); err == nil {
			err = rerr
		}
	}()
	if err := fs.WriteFile(ctx, f, probe, []byte("x"), false); err != nil {
		return at, err
	}
	info, err := f.Stat(ctx, probe)
	return info.ModTime, err
}

// clock compares this machine's time with that of a file that was written just now.
func (p *Patient) clock(at time.Time) Finding {
	const check, mend = "clock", "let both keep time by NTP (chronyc tracking)"
	skew := p.Now().Sub(at).Abs().Round(time.Second)
	switch {
	case at.IsZero():
		return warn(check, "the file system tells no time", mend)
	case skew > maxSkew:
		return bad(check, fmt.Sprintf("this machine and the file system differ by %s, and Kerberos allows 5m", skew), mend)
	case skew > warnSkew:
		return warn(check, fmt.Sprintf("this machine and the file system differ by %s", skew), mend)
	}
	return good(check, fmt.Sprintf("this machine and the file system differ by %s", skew))
}
