package submit

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/thalweg/thalweg/am"
	"github.com/thalweg/thalweg/am/container"
	"github.com/thalweg/thalweg/am/login"
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/staging"
)

// shipped is a file that every container gets in its folder, as name.
type shipped struct {
	key, name string
	archive   bool
	local     string          // path here; "" for one that the cluster has
	private   bool            // others may not read it here, and so not there
	remote    *container.File // of one that the cluster has
}

// maxShipped bounds the files: each is in the launch context of every container.
const maxShipped = 1000

// archives are the endings of what YARN unpacks. Source: FSDownload.unpack, RunJar, FileUtil.unTar, Hadoop 3.4.
var archives = []string{".zip", ".jar", ".tar", ".tar.gz", ".tgz"}

// gather lists what is sent along, and the programs of provided folders.
//
// Source: Flink 2.x YarnClusterDescriptor.startAppMaster, YarnApplicationFileUploader.
func (s *submission) gather(ctx context.Context) error {
	for _, o := range []struct {
		opt     *config.Option[[]string]
		archive bool
	}{{config.YarnShipFiles, false}, {config.YarnShipArchives, true}} {
		for _, v := range o.opt.Value(s.Config) {
			var err error
			if p, ok := localPath(v); ok {
				err = s.gatherLocal(o.opt.Key, p, o.archive)
			} else {
				err = s.gatherRemote(ctx, o.opt.Key, v, o.archive)
			}
			if err != nil {
				return err
			}
		}
	}
	for _, v := range config.YarnProvidedLibs.Value(s.Config) {
		if err := s.gatherProvided(ctx, v); err != nil {
			return err
		}
	}
	return s.checkShipped()
}

// localPath is the path of a file here: a path, or a file:// URI.
func localPath(v string) (string, bool) {
	if p, ok := strings.CutPrefix(v, "file://"); ok {
		return p, true
	}
	return v, !strings.Contains(v, "://")
}

func (s *submission) gatherLocal(key, p string, archive bool) error {
	info, err := os.Stat(p)
	switch {
	case err != nil:
		return refuse(key, err, "%s: %s: %v", key, p, errors.Unwrap(err))
	case archive && !isArchive(p, info.IsDir()):
		return refuse(key, nil, "%s: %s is not an archive that YARN unpacks (%s)", key, p, strings.Join(archives, " "))
	case !info.IsDir():
		s.ships = append(s.ships, shipped{key: key, name: filepath.Base(p), archive: archive, local: p, private: info.Mode()&0o004 == 0})
		return nil
	}
	abs, err := filepath.Abs(p)
	if err != nil {
		return fmt.Errorf("submit: %w", err)
	}
	err = filepath.WalkDir(abs, func(q string, e iofs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := os.Stat(q) // through links
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() {
			return fmt.Errorf("%s is not a regular file", q)
		}
		rel, err := filepath.Rel(filepath.Dir(abs), q)
		s.ships = append(s.ships, shipped{key: key, name: rel, local: q, private: info.Mode()&0o004 == 0})
		return err
	})
	if err != nil {
		return refuse(key, err, "%s: %v", key, err)
	}
	return nil
}

func isArchive(name string, dir bool) bool {
	return !dir && slices.ContainsFunc(archives, func(end string) bool { return strings.HasSuffix(strings.ToLower(name), end) })
}

func (s *submission) gatherRemote(ctx context.Context, key, uri string, archive bool) error {
	f, info, err := s.look(ctx, key, uri)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // nothing is open
	switch {
	case archive && !isArchive(info.Path, info.IsDir):
		return refuse(key, nil, "%s: %s is not an archive that YARN unpacks (%s)", key, uri, strings.Join(archives, " "))
	case !info.IsDir:
		return s.remote(ctx, f, key, path.Base(info.Path), info, archive)
	}
	return s.walk(ctx, f, key, info.Path, func(rel string, i fs.Info) error {
		return s.remote(ctx, f, key, path.Join(path.Base(info.Path), rel), i, false)
	})
}

// look opens the file system of a URI and says what is there.
func (s *submission) look(ctx context.Context, key, uri string) (fs.FileSystem, fs.Info, error) {
	f, p, err := s.FS.Resolve(ctx, uri)
	if err != nil {
		return nil, fs.Info{}, s.unreachable(key, uri, err)
	}
	info, err := f.Stat(ctx, p)
	if err == nil {
		info.Path = p
		return f, info, nil
	}
	_ = f.Close() // nothing is open
	if errors.Is(err, fs.ErrUnavailable) || ctx.Err() != nil {
		return nil, info, s.unreachable(key, uri, err)
	}
	return nil, info, refuse(key, err, "%s: %s: %v", key, uri, err)
}

func (s *submission) walk(ctx context.Context, f fs.FileSystem, key, dir string, each func(rel string, i fs.Info) error) error {
	list, err := f.List(ctx, dir)
	if err != nil {
		return refuse(key, err, "%s: %s%s cannot be listed: %v", key, f.URI(), dir, err)
	}
	for _, i := range list {
		name := path.Base(i.Path)
		i.Path = path.Join(dir, name)
		if i.IsDir {
			err = s.walk(ctx, f, key, i.Path, func(rel string, i fs.Info) error { return each(path.Join(name, rel), i) })
		} else {
			err = each(name, i)
		}
		if err != nil {
			return err
		}
		if len(s.ships) > maxShipped {
			return nil // refused later
		}
	}
	return nil
}

func (s *submission) remote(ctx context.Context, f fs.FileSystem, key, name string, i fs.Info, archive bool) error {
	public, err := staging.Public(ctx, f, i)
	if err != nil {
		return refuse(key, err, "%s: %s%s: %v", key, f.URI(), i.Path, err)
	}
	s.ships = append(s.ships, shipped{key: key, name: name, archive: archive, remote: &container.File{
		Name: name, URI: f.URI() + i.Path, Size: i.Size, ModTime: i.ModTime, Public: public}})
	return nil
}

// gatherProvided takes the files of a folder that is on the cluster for all its users: they are localised once for all applications, so everybody
// must be able to read them. Programs of this product in it are used in place of those beside the client; whatever else is in it goes along.
func (s *submission) gatherProvided(ctx context.Context, uri string) error {
	key := config.YarnProvidedLibs.Key
	f, info, err := s.look(ctx, key, uri)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // nothing is open
	if !info.IsDir {
		return refuse(key, nil, "%s: %s is not a folder", key, uri)
	}
	return s.walk(ctx, f, key, info.Path, func(rel string, i fs.Info) error {
		if err := s.remote(ctx, f, key, rel, i, false); err != nil {
			return err
		}
		last := &s.ships[len(s.ships)-1]
		if !last.remote.Public {
			return refuse(key, nil, "%s: %s is not readable by everybody, or a folder above it is not: YARN shares what is provided (hdfs dfs -chmod -R o+rX %s)", key, last.remote.URI, uri)
		}
		if rel == am.MasterBinary || rel == am.TaskManagerBinary {
			if s.provided == nil {
				s.provided = map[string]container.File{}
			}
			if was, twice := s.provided[rel]; twice {
				return refuse(key, nil, "%s: there are two %s: %s and %s", key, rel, was.URI, last.remote.URI)
			}
			s.provided[rel] = *last.remote
			s.ships = s.ships[:len(s.ships)-1]
		}
		return nil
	})
}

// checkShipped refuses names that two files have, or that containers have other uses for, and too many files.
func (s *submission) checkShipped() error {
	if len(s.ships) > maxShipped {
		return refuse(s.ships[maxShipped].key, nil, "%s: more than %d files: send them as an archive (%s)", s.ships[maxShipped].key, maxShipped, config.YarnShipArchives.Key)
	}
	if n := len(s.provided); n == 1 {
		return refuse(config.YarnProvidedLibs.Key, nil, "%s: there is only one of %s and %s: they belong together", config.YarnProvidedLibs.Key, am.MasterBinary, am.TaskManagerBinary)
	}
	taken := map[string]string{am.MasterBinary: "", am.TaskManagerBinary: "", config.LocalKeytab.Value(s.Config): "", login.ConfName: "",
		"job": "", "workers": "", "tmp": "", "container_tokens": "", "launch_container.sh": ""}
	for _, x := range s.ships {
		from := x.local
		if x.remote != nil {
			from = x.remote.URI
		}
		if strings.ContainsAny(x.name, "\"'$`\\\n") {
			return refuse(x.key, nil, "%s: %s: a name on the nodes may not have quotes, $ or \\", x.key, from)
		}
		top, _, _ := strings.Cut(x.name, "/")
		if other, ok := taken[x.name]; ok && other != "" {
			return refuse(x.key, nil, "%s: %s and %s would both be %s in the containers' folder", x.key, other, from, x.name)
		}
		if other, ok := taken[top]; ok && other == "" {
			return refuse(x.key, nil, "%s: %s: containers have another %s in their folder: rename it", x.key, from, top)
		}
		taken[x.name] = from
	}
	return nil
}

// sendShipped sends what is here, by content where others may read it, and lists all for the containers.
func (s *submission) sendShipped(ctx context.Context) (out []container.File, err error) {
	var files []string
	for _, x := range s.ships {
		if x.local != "" && !x.private {
			files = append(files, x.local)
		}
	}
	staged, err := s.store.PutAll(ctx, files, s.Progress)
	if err != nil {
		return nil, err
	}
	for _, x := range s.ships {
		var f container.File
		switch {
		case x.remote != nil:
			f = *x.remote
		case x.private:
			var p *container.File
			if p, err = s.sendPrivate(ctx, x.local, path.Join(shipDir, x.name)); err != nil {
				return nil, err
			}
			f = *p
		default:
			f = file(staged[0])
			s.res.Artifacts, s.res.Sent = append(s.res.Artifacts, staged[0]), s.res.Sent+staged[0].Sent
			staged = staged[1:]
		}
		f.Name, f.Archive = x.name, x.archive
		out = append(out, f)
	}
	return out, nil
}

// shipDir is the part of the application's folder for files that others may not read.
const shipDir = "ship"
