package integration

import (
	"bytes"
	"errors"
	"fmt"
	iofs "io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/thalweg/thalweg/connector/kafka/kafkatest"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/test/rig/rigtest"
)

// folders are the folders of a job from files to files in HDFS.
type folders struct {
	t    *testing.T
	f    fs.FileSystem
	root string
}

func newFolders(t *testing.T) folders {
	t.Helper()
	d := folders{t, hdfsOf(t), "/batch/" + kafkatest.Name("it")}
	t.Cleanup(func() {
		if err := d.f.Remove(t.Context(), d.root, true); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
	})
	return d
}

func (d folders) uri(name string) string { return "hdfs://" + d.root + "/" + name }

func (d folders) write(name string, lines []string) {
	d.t.Helper()
	p := path.Join(d.root, name)
	if err := d.f.Mkdir(d.t.Context(), path.Dir(p), 0o755); err != nil {
		d.t.Fatal(err)
	}
	if err := fs.WriteFile(d.t.Context(), d.f, p, []byte(strings.Join(lines, "\n")+"\n"), false); err != nil {
		d.t.Fatal(err)
	}
}

// lines are those of all files that stand in a folder, sorted. What is not a file is returned by name.
func (d folders) lines(name string) (lines, other []string) {
	d.t.Helper()
	infos, err := d.f.List(d.t.Context(), path.Join(d.root, name))
	if err != nil {
		d.t.Fatal(err)
	}
	for _, i := range infos {
		if i.IsDir {
			other = append(other, path.Base(i.Path))
			continue
		}
		b, err := fs.ReadFile(d.t.Context(), d.f, i.Path, 64<<20)
		if err != nil {
			d.t.Fatal(err)
		}
		lines = append(lines, strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")...)
	}
	slices.Sort(lines)
	return lines, other
}

// ended checks how the job ended, what it wrote, and that it left nothing beside it, here or in HDFS.
func (d folders) ended(j *job, out map[string][]string) {
	d.t.Helper()
	a := j.awaitEnd()
	if a.State != "FINISHED" || a.Final != "SUCCEEDED" {
		d.t.Fatalf("%s/%s: %s", a.State, a.Final, a.Diagnostics)
	}
	for name, want := range out {
		slices.Sort(want)
		got, other := d.lines(name)
		same(d.t, name, got, want)
		for _, o := range other {
			if _, ok := out[path.Join(name, o)]; !ok {
				d.t.Errorf("%s holds the folder %s", name, o)
			}
		}
	}
	noFolder(d.t, a)
	until(d.t, patience, "the removal of the containers' local folders", func() (bool, error) {
		left, err := filepath.Glob(filepath.Join(cluster.Dir, "*", "*", "local", "usercache", "*", "appcache", j.app))
		if len(left) > 0 {
			err = errors.Join(err, fmt.Errorf("left: %v", left))
		}
		return len(left) == 0, err
	})
}

// The example runs on YARN from HDFS to HDFS, in one container and in several that read each other's partitions.
func TestBatchExample(t *testing.T) {
	d := newFolders(t)
	sums := map[string]int64{}
	count := map[string]int64{}
	var bad []string
	for f := range 4 {
		var lines []string
		for i := range 3000 {
			day, shop := fmt.Sprintf("2026-01-%02d", 1+(i*7+f)%28), fmt.Sprintf("shop%d", i%11)
			if i%500 == 7 {
				lines, bad = append(lines, "no sale "+strconv.Itoa(f*10000+i)), append(bad, "no sale "+strconv.Itoa(f*10000+i))
				continue
			}
			lines = append(lines, fmt.Sprintf("%s,%s,%d", day, shop, i))
			sums[day+shop] += int64(i)
			count[day+shop]++
		}
		d.write(fmt.Sprintf("in/%d.csv", f), lines)
	}
	var want []string
	for k, cents := range sums {
		want = append(want, fmt.Sprintf(`{"day":%q,"shop":%q,"sales":%d,"cents":%d}`, k[:10], k[10:], count[k], cents))
	}
	for _, p := range []int{1, 3} {
		t.Run(fmt.Sprintf("parallelism %d", p), func(t *testing.T) {
			d, out := d, fmt.Sprintf("out-%d", p)
			d.t = t
			j := submit(t, []string{"-p", strconv.Itoa(p)}, bin+"/examples/file-etl", "-in", d.uri("in"), "-out", d.uri(out))
			d.ended(j, map[string][]string{out: want, out + "/rejected": bad})
		})
	}
}

// batchJob is a run of testdata/programs/batch.
type batchJob struct {
	*job
	d     folders
	marks string
	want  map[string][]string
}

func startBatch(t *testing.T) *batchJob {
	t.Helper()
	rigtest.Needs(t, cluster, rigtest.Daemons) // its containers are held up by a folder here
	b := &batchJob{d: newFolders(t), marks: t.TempDir()}
	sums := map[string]int64{}
	var bad []string
	for f := range 3 {
		var lines []string
		for i := range 1000 {
			key := fmt.Sprintf("k%d", (i*31+f)%200)
			lines = append(lines, fmt.Sprintf("%s,%d", key, i))
			sums[key] += int64(i)
			if i%100 == 0 {
				text := fmt.Sprintf("nonsense %d", f*10000+i)
				lines, bad = append(lines, text), append(bad, text)
			}
		}
		b.d.write(fmt.Sprintf("in/%d", f), lines)
	}
	b.d.write("names/0", []string{"k7,1000000", "name,1"})
	sums["k7"] += 1000000
	sums["name"] = 1
	var out []string
	for k, n := range sums {
		out = append(out, fmt.Sprintf("%s,%d", k, n))
	}
	b.want = map[string][]string{"out": out, "out/rejected": bad}
	b.job = submit(t, []string{"-p", "3"}, batch, "-in", b.d.uri("in"), "-names", b.d.uri("names"), "-out", b.d.uri("out"), "-marks", b.marks)
	return b
}

// attempts are those of a stage, and the processes of each one's tasks.
func (b *batchJob) attempts(stage string) map[int]map[int]int {
	b.t.Helper()
	files, err := filepath.Glob(filepath.Join(b.marks, stage+"-*-*"))
	if err != nil {
		b.t.Fatal(err)
	}
	out := map[int]map[int]int{}
	for _, f := range files {
		part := strings.Split(filepath.Base(f), "-")
		subtask, err1 := strconv.Atoi(part[1])
		attempt, err2 := strconv.Atoi(part[2])
		text, err3 := os.ReadFile(f)
		if err := errors.Join(err1, err2, err3); err != nil {
			continue // being written
		}
		pid, err := strconv.Atoi(string(text))
		if err != nil {
			b.t.Fatal(err)
		}
		if out[attempt] == nil {
			out[attempt] = map[int]int{}
		}
		out[attempt][subtask] = pid
	}
	return out
}

// held waits until all three sums of an attempt after last are held up, and returns it with their processes.
func (b *batchJob) held(last int) (attempt int, pids map[int]int) {
	b.t.Helper()
	until(b.t, patience, fmt.Sprintf("an attempt after %d to be held up", last), func() (bool, error) {
		for a, p := range b.attempts("held") {
			if a > last && len(p) == 3 {
				attempt, pids = a, p
				return true, nil
			}
		}
		return false, nil
	})
	return attempt, pids
}

// letGo lets an attempt go on.
func (b *batchJob) letGo(attempt int) {
	b.t.Helper()
	if err := os.WriteFile(filepath.Join(b.marks, fmt.Sprintf("go-%d", attempt)), nil, 0o600); err != nil {
		b.t.Fatal(err)
	}
}

// ran checks how often a stage ran.
func (b *batchJob) ran(stage string, want int) {
	b.t.Helper()
	if a := b.attempts(stage); len(a) != want {
		b.t.Errorf("stage %s ran as attempts %v, want %d", stage, slices.Sorted(maps.Keys(a)), want)
	}
}

// elsewhere is a process of these that is not the one where the stage that ran in one task did.
func (b *batchJob) elsewhere(pids map[int]int) int {
	b.t.Helper()
	narrow := b.attempts("names")[0][0]
	for _, p := range pids {
		if p != narrow {
			return p
		}
	}
	b.t.Fatalf("all of %v is at %d", pids, narrow)
	return 0
}

func (b *batchJob) kill(pids ...int) {
	b.t.Helper()
	for _, p := range pids {
		if err := syscall.Kill(p, syscall.SIGKILL); err != nil {
			b.t.Fatal(err)
		}
	}
}

// parent is the process that started another: a worker's TaskManager.
func parent(t *testing.T, pid int) int {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	p, err := strconv.Atoi(f[1])
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (j *job) masters() []int {
	return j.processes(func(_, cmd []byte) bool {
		return strings.HasSuffix(strings.Split(string(cmd), "\x00")[0], "thalweg-appmaster")
	})
}

// rejectedIsOut waits until the stage that has nothing to wait for has committed.
func (b *batchJob) rejectedIsOut() {
	b.t.Helper()
	until(b.t, patience, "the rejected lines", func() (bool, error) {
		infos, err := b.d.f.List(b.t.Context(), path.Join(b.d.root, "out/rejected"))
		if errors.Is(err, iofs.ErrNotExist) {
			return false, nil
		}
		return slices.ContainsFunc(infos, func(i fs.Info) bool { return !i.IsDir }), err
	})
}

// A worker and a TaskManager die in the middle of a stage: it runs again, and with it the stage before it, of whose output they held a part;
// but not the one whose output is elsewhere, nor the one that has committed.
func TestBatchWithoutWorkers(t *testing.T) {
	b := startBatch(t)
	first, pids := b.held(-1)
	b.rejectedIsOut()
	b.kill(b.elsewhere(pids))
	b.letGo(first)
	second, pids := b.held(first)
	b.ran("read", 2)
	b.kill(parent(t, b.elsewhere(pids)))
	b.letGo(second)
	third, _ := b.held(second)
	b.letGo(third)
	b.d.ended(b.job, b.want)
	b.ran("read", 3)
	b.ran("names", 1)
}

// The master dies in the middle of a stage: the next one goes on with that stage. What had finished is not run again when the containers that
// hold it live on, and what had committed never is.
func TestBatchWithoutMaster(t *testing.T) {
	for _, c := range []struct {
		name  string
		alone bool
		reads int
	}{{"alone", true, 1}, {"and a TaskManager", false, 2}} {
		t.Run(c.name, func(t *testing.T) {
			b := startBatch(t)
			first, pids := b.held(-1)
			b.rejectedIsOut()
			masters := b.masters()
			if len(masters) != 1 {
				t.Fatalf("masters %v", masters)
			}
			b.awaitReported(4)
			if !c.alone {
				masters = append(masters, parent(t, b.elsewhere(pids)))
			}
			b.kill(masters...)
			b.letGo(first)
			next, _ := b.held(first)
			if next < 1<<20 {
				t.Errorf("attempt %d is of the master that died", next)
			}
			b.letGo(next)
			b.d.ended(b.job, b.want)
			b.ran("read", c.reads)
			b.ran("names", 1)
			b.ran("sum", 2)
		})
	}
}
