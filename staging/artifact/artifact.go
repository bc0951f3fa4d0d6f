// Package artifact turns what a user names on the command line into the job's binary: an executable for linux/amd64 that links the SDK, a
// Go file or a package folder (built first). Layer L5; imports internal only. Nothing here runs user code.
package artifact

import (
	"bytes"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/thalweg/thalweg/internal/version"
)

const (
	module = "github.com/thalweg/thalweg"
	// entry is the function that every job's main calls. Its name is in the binary's function table, which stripping leaves.
	entry = module + "/stream.Main"
	// protocolMarker is a string in the SDK, followed by the number of version.Protocol and a semicolon.
	protocolMarker = "thalweg.sdk.protocol="
)

// Error is a fault of the artifact: one line with what, where and what to do.
type Error struct{ Text string }

func (e *Error) Error() string { return e.Text }

func faultf(format string, args ...any) error {
	return &Error{fmt.Sprintf("artifact "+format, args...)}
}

// Options change Resolve.
type Options struct {
	// OnBuild is called with the command before a build starts.
	OnBuild func(command string)
	// CacheDir holds what was built; the user's cache folder by default. What was not built again for 30 days goes, and what is beyond the
	// last 20.
	CacheDir string
}

// Resolve returns the path of the binary for what the user named. A Go file or a folder with a main package is built, static, for
// linux/amd64; what did not change is not built again (the Go tool compares contents).
//
// Errors: *Error for everything that the user can mend.
func Resolve(ctx context.Context, name string, o Options) (string, error) {
	info, err := os.Stat(name)
	switch {
	case errors.Is(err, iofs.ErrNotExist):
		return "", faultf("%s does not exist: give an executable, a .go file or a package folder", name)
	case err != nil:
		return "", faultf("%s: %v", name, err)
	case info.IsDir(), strings.HasSuffix(name, ".go"):
		if name, err = build(ctx, name, info.IsDir(), o); err != nil {
			return "", err
		}
	}
	return name, Check(name)
}

// Check looks whether the file can be a job: an executable for linux/amd64 that links the SDK and speaks this protocol.
//
// Errors: *Error.
func Check(name string) error { return CheckFor(name, name, "this client") }

// CheckFor is Check of a file that messages call name, for peer, which has this program's protocol.
//
// Errors: *Error.
func CheckFor(file, name, peer string) error {
	f, err := os.Open(file)
	if err != nil {
		return faultf("%s: %v", name, err)
	}
	defer f.Close() //nolint:errcheck // only read
	var head [4]byte
	if _, err := io.ReadFull(f, head[:]); err != nil || string(head[:]) != elf.ELFMAG {
		return faultf("%s is not an executable for linux/amd64 (%s): build it with GOOS=linux GOARCH=amd64 CGO_ENABLED=0 go build, or name the package's folder", name, kind(head))
	}
	e, err := elf.NewFile(f)
	if err != nil {
		return faultf("%s is a damaged executable: %v: build it again", name, err)
	}
	if e.Class != elf.ELFCLASS64 || e.Machine != elf.EM_X86_64 || e.Type != elf.ET_EXEC && e.Type != elf.ET_DYN {
		return faultf("%s is for %s, not an executable for linux/amd64: build it with GOOS=linux GOARCH=amd64 CGO_ENABLED=0 go build", name, strings.TrimPrefix(e.Machine.String(), "EM_"))
	}
	if _, err := buildinfo.Read(f); err != nil {
		return faultf("%s does not link the SDK: it is no Go program (write it against %s/stream)", name, module)
	}
	links, err := linksEntry(e)
	if err != nil {
		return faultf("%s is a damaged executable: %v: build it again", name, err)
	}
	if !links {
		return faultf("%s does not link the SDK: its main must call stream.Main of %s/stream", name, module)
	}
	return checkProtocol(name, peer, f)
}

// CheckStatic looks whether the executable runs on any machine: one that wants a loader and its libraries of the machine may not.
//
// Errors: *Error.
func CheckStatic(name string) error {
	e, err := elf.Open(name)
	if err != nil {
		return faultf("%s: %v", name, err)
	}
	defer e.Close() //nolint:errcheck // only read
	for _, p := range e.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		loader := make([]byte, min(p.Filesz, 256))
		n, _ := p.ReadAt(loader, 0) // only named in the message
		return faultf("%s is dynamically linked (%s), and the cluster's machines may lack its libraries: build it with CGO_ENABLED=0 go build and without -buildmode=pie or -race, or name the package's folder",
			name, strings.TrimRight(string(loader[:n]), "\x00"))
	}
	return nil
}

// linksEntry looks for the entry point among the names of the functions that are linked, which stripping leaves: they are ended by zero bytes, so that
// a program that only mentions it is told apart. A file without sections is searched as a whole.
func linksEntry(e *elf.File) (bool, error) {
	want := []byte("\x00" + entry + "\x00")
	for _, s := range e.Sections {
		if !strings.HasSuffix(s.Name, ".gopclntab") || s.Type == elf.SHT_NOBITS {
			continue
		}
		b, err := s.Data()
		return bytes.Contains(b, want), err
	}
	for _, p := range e.Progs {
		if p.Type != elf.PT_LOAD {
			continue
		}
		b, err := io.ReadAll(p.Open())
		if err != nil {
			return false, err
		}
		if bytes.Contains(b, want) {
			return true, nil
		}
	}
	return false, nil
}

func kind(head [4]byte) string {
	switch {
	case head[0] == '#' && head[1] == '!':
		return "it is a script"
	case string(head[:2]) == "PK":
		return "it is a zip or jar file"
	case string(head[:2]) == "MZ":
		return "it is for Windows"
	case bytes.Equal(head[:], []byte{0xcf, 0xfa, 0xed, 0xfe}):
		return "it is for macOS"
	}
	return "its first bytes are " + strconv.Quote(string(head[:]))
}

// checkProtocol searches the file's bytes: it is as fast as reading them.
func checkProtocol(name, peer string, f *os.File) error {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return faultf("%s: %v", name, err)
	}
	var (
		found   = -1
		longest = len(protocolMarker) + 8
		buf     = make([]byte, 0, 1<<20)
	)
	for {
		n, err := f.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if i := bytes.Index(buf, []byte(protocolMarker)); i >= 0 && found < 0 {
			digits, _, ok := bytes.Cut(buf[i+len(protocolMarker):min(len(buf), i+longest)], []byte(";"))
			if p, err := strconv.Atoi(string(digits)); ok && err == nil {
				found = p
			}
		}
		if found >= 0 || err != nil {
			break
		}
		if keep := min(len(buf), longest); n > 0 {
			buf = append(buf[:0], buf[len(buf)-keep:]...)
		}
	}
	if found >= 0 && found != version.Protocol {
		return faultf("%s was built with %s of protocol %d, %s has protocol %d (version %s): build it with the same release of %s", name, sdk(f), found, peer, version.Protocol, version.Version, module)
	}
	return nil
}

// sdk names the SDK that a program links, with its version when the program tells.
func sdk(f *os.File) string {
	info, err := buildinfo.Read(f)
	if err != nil {
		return "an SDK"
	}
	for _, m := range info.Deps {
		if m.Path == module && m.Version != "" {
			return "SDK " + m.Version
		}
	}
	return "an SDK"
}

func build(ctx context.Context, name string, dir bool, o Options) (string, error) {
	abs, err := filepath.Abs(name)
	if err != nil {
		return "", faultf("%s: %v", name, err)
	}
	tool, err := exec.LookPath("go")
	if err != nil {
		return "", faultf("%s has to be built, but there is no go command in PATH: install Go, or give an executable", name)
	}
	cache := o.CacheDir
	if cache == "" {
		if cache, err = os.UserCacheDir(); err != nil {
			cache = os.TempDir()
		}
		cache = filepath.Join(cache, "thalweg", "build")
	}
	sum := sha256.Sum256([]byte(abs))
	base := strings.TrimSuffix(filepath.Base(abs), ".go")
	out := filepath.Join(cache, hex.EncodeToString(sum[:8]), base)
	if err := os.MkdirAll(filepath.Dir(out), 0o750); err != nil {
		return "", faultf("%s cannot be built: %v", name, err)
	}
	work, target := abs, "."
	if !dir {
		work, target = filepath.Dir(abs), filepath.Base(abs)
	}
	args := []string{"build", "-trimpath", "-ldflags", "-s -w", "-o", out, target}
	env := append(toolchain(ctx, tool), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	if o.OnBuild != nil {
		o.OnBuild(strings.Join(env, " ") + " go " + strings.Join(args, " "))
	}
	cmd := exec.CommandContext(ctx, tool, args...)
	cmd.Dir = work
	cmd.Env = append(os.Environ(), env...)
	text, err := cmd.CombinedOutput()
	if err != nil {
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		return "", faultf("%s does not build: %s", name, compilerSays(string(text)))
	}
	if info, err := os.Stat(out); err != nil || info.Mode()&0o111 == 0 {
		return "", faultf("%s is not a main package: it builds, but to no executable", name)
	}
	prune(cache, filepath.Base(filepath.Dir(out)), time.Now())
	return out, nil
}

// toolchain lets a go command fetch the toolchain that the module asks for, where the installation forbids it (GOTOOLCHAIN=local, as
// distributions ship it): a job needs a newer one than most machines have. Another choice of the user's stands.
func toolchain(ctx context.Context, tool string) []string {
	cmd := exec.CommandContext(ctx, tool, "env", "GOTOOLCHAIN")
	cmd.Dir = os.TempDir() // outside of any module
	if out, err := cmd.Output(); err != nil || strings.TrimSpace(string(out)) != "local" {
		return nil
	}
	return []string{"GOTOOLCHAIN=auto"}
}

// compilerSays leaves out the headings of packages.
func compilerSays(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "# ") {
			lines = append(lines, strings.TrimRight(line, "\n"))
		}
	}
	return strings.TrimSpace(strings.Join(lines, "\n"))
}
