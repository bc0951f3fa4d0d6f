package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/thalweg/thalweg/am/submit"
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/runtime/history"
	"github.com/thalweg/thalweg/runtime/rest"
	"github.com/thalweg/thalweg/staging"
	"github.com/thalweg/thalweg/yarnrpc/ipc"
)

const whereHistory = "\n\nWhen a job on YARN ends, its last state is written to jobmanager.archive.fs.dir: the folder history of the staging folder, unless it is\n" +
	"set. historyserver.archive.fs.dir names the folders to look into, that one by default. The newest historyserver.archive.retained-jobs are kept."

func (c *cli) historyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "history", Short: "look at jobs that have ended", Args: atMost(),
		Long:    "Look at jobs that have ended, after their application is gone: list them (list), look at one (show), serve them for browsers and\nFlink's tools (serve)." + whereHistory,
		Example: "  thalweg history list\n  thalweg history show 4f1c...\n  thalweg history serve -Dhistoryserver.web.port=8082",
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	list := &cobra.Command{
		Use: "list", Short: "list the jobs that have ended", Args: atMost(),
		Long:    "List the jobs that have ended, those that ended last first." + whereHistory,
		Example: "  thalweg history list\n  thalweg history list -o json | jq -r .jid",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.withHistory(cmd.Context(), c.listHistory)
		},
	}
	show := &cobra.Command{
		Use: "show job", Short: "look at a job that has ended", Args: named("the id of a job"),
		Long:    "Look at a job that has ended: how, why, and its last checkpoints. With -o json: its documents, as /jobs/ID, /jobs/ID/exceptions and\n/jobs/ID/checkpoints had them, in one object." + whereHistory,
		Example: "  thalweg history show 4f1c...\n  thalweg history show -o json 4f1c... | jq .job.vertices",
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.withHistory(cmd.Context(), func(ctx context.Context, s *history.Store, _ config.Configuration) error {
				return c.showHistory(ctx, s, args[0])
			})
		},
	}
	serve := &cobra.Command{
		Use: "serve", Short: "serve the jobs that have ended", Args: atMost(),
		Long: "Serve the jobs that have ended: the status page, and Flink's paths (jobs/overview, jobs/ID, jobs/ID/exceptions, ...), until the command is\n" +
			"ended. It listens at historyserver.web.address (localhost) and historyserver.web.port (8082)." + whereHistory,
		Example: "  thalweg history serve\n  thalweg history serve -Dhistoryserver.archive.fs.dir=hdfs:///a;hdfs:///b",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.withHistory(cmd.Context(), c.serveHistory)
		},
	}
	cmd.AddCommand(list, show, serve)
	return cmd
}

// withHistory opens the folders of archives, and reads them.
func (c *cli) withHistory(ctx context.Context, do func(ctx context.Context, s *history.Store, cfg config.Configuration) error) error {
	cfg, err := c.config(nil)
	if err != nil {
		return err
	}
	k, err := c.connect(cfg)
	if err != nil {
		return err
	}
	defer k.close()
	files, err := k.files()
	if err != nil {
		return &usageError{err}
	}
	dirs, err := historyDirs(cfg, k)
	if err != nil {
		return err
	}
	var folders []history.Folder
	defer func() {
		for _, f := range folders {
			_ = f.FS.Close() // only read
		}
	}()
	for _, uri := range dirs {
		f, p, err := files.Resolve(ctx, uri)
		if err != nil {
			return fmt.Errorf("history: %s: %w", uri, err)
		}
		folders = append(folders, history.Folder{FS: f, Path: p})
	}
	s := history.Open(func(uri string, err error) { c.notef("%s is not the archive of a job, and is left out: %v", uri, err) }, folders...)
	if err := s.Refresh(ctx); err != nil {
		return err
	}
	return do(ctx, s, cfg)
}

// historyDirs are the folders with archives.
func historyDirs(cfg config.Configuration, k *cluster) ([]string, error) {
	dirs, key := config.HistoryDirs.Value(cfg), config.HistoryDirs.Key
	if d := config.ArchiveDir.Value(cfg); len(dirs) == 0 && d != "" {
		dirs, key = []string{d}, config.ArchiveDir.Key
	}
	if len(dirs) == 0 {
		root, err := submit.Root(cfg, k.hadoop, k.user)
		return []string{root + "/" + staging.HistoryDir}, err
	}
	out := make([]string, len(dirs))
	for i, d := range dirs {
		uri, err := submit.Folder(key, d, k.hadoop)
		if err != nil {
			return nil, &usageError{err}
		}
		out[i] = uri
	}
	return out, nil
}

func (c *cli) listHistory(_ context.Context, s *history.Store, _ config.Configuration) error {
	t := newTable("JOB", "NAME", "STATE", "ENDED", "DURATION", "APPLICATION")
	for _, j := range s.Jobs() {
		if c.json() {
			if err := c.emit(j); err != nil {
				return err
			}
			continue
		}
		t.row("", j.ID, j.Name, j.State, since(j.End), round(time.Duration(j.Duration)*time.Millisecond), j.Application)
	}
	if c.json() {
		return nil
	}
	return t.writeTo(c.print)
}

// ended are the parts of a job's documents that are shown.
type ended struct {
	Name       string
	State      string
	Start      int64 `json:"start-time"`
	End        int64 `json:"end-time"`
	Duration   int64
	Restarts   int
	Vertices   []struct{ Name, Status string }
	Exceptions struct {
		ExceptionHistory struct {
			Entries []struct {
				Stacktrace string
				TaskName   string
				Timestamp  int64
			}
		}
	} `json:"-"`
	Checkpoints struct {
		Counts struct{ Completed, Failed int }
		Latest struct {
			Completed *struct {
				ID   int64
				Path string `json:"external_path"`
			}
			Savepoint *struct {
				ID   int64
				Path string `json:"external_path"`
			}
		}
	} `json:"-"`
}

func (c *cli) showHistory(ctx context.Context, s *history.Store, id string) error {
	docs := map[string]json.RawMessage{}
	for name, p := range map[string]string{"job": "", "exceptions": "/exceptions", "checkpoints": "/checkpoints"} {
		doc, ok, err := s.Document(ctx, id, "/jobs/"+id+p)
		if err != nil {
			return err
		}
		if ok {
			docs[name] = json.RawMessage(doc)
		}
	}
	if docs["job"] == nil {
		return fmt.Errorf("history: there is no job %q (thalweg history list shows those that there are)", id)
	}
	if c.json() {
		return c.emit(docs)
	}
	var e ended
	for name, v := range map[string]any{"job": &e, "exceptions": &e.Exceptions, "checkpoints": &e.Checkpoints} {
		if docs[name] == nil {
			continue
		}
		if err := json.Unmarshal(docs[name], v); err != nil {
			return fmt.Errorf("history: the archive of job %s is damaged: %w", id, err)
		}
	}
	c.printf("Job          %s (%s)\nState        %s\nRan          %s to %s, %s\n", id, e.Name, e.State, since(e.Start), since(e.End), round(time.Duration(e.Duration)*time.Millisecond))
	for _, v := range e.Vertices {
		c.printf("Task         %s: %s\n", v.Name, v.Status)
	}
	for _, f := range e.Exceptions.ExceptionHistory.Entries {
		c.printf("Failure      %s %s: %s\n", since(f.Timestamp), f.TaskName, oneLine(f.Stacktrace))
	}
	c.printf("Checkpoints  %d completed, %d failed\n", e.Checkpoints.Counts.Completed, e.Checkpoints.Counts.Failed)
	if last := e.Checkpoints.Latest.Completed; last != nil {
		c.printf("Last         %d at %s\n", last.ID, last.Path)
	}
	if last := e.Checkpoints.Latest.Savepoint; last != nil {
		c.printf("Savepoint    %d at %s\n", last.ID, last.Path)
	}
	return nil
}

// serveHistory serves until ctx ends, which is its end in order.
func (c *cli) serveHistory(ctx context.Context, s *history.Store, cfg config.Configuration) error {
	every := config.HistoryRefresh.Value(cfg)
	address := net.JoinHostPort(config.HistoryAddress.Value(cfg), strconv.Itoa(config.HistoryPort.Value(cfg)))
	server, err := rest.Listen(ctx, address, history.Handler(s, every), zerolog.Nop())
	if err != nil {
		return &usageError{fmt.Errorf("history: %s cannot be listened at: %w (%s, %s)", address, err, config.HistoryAddress.Key, config.HistoryPort.Key)}
	}
	defer server.Close()
	if c.json() {
		if err := c.emit(map[string]any{"event": "serving", "url": "http://" + server.Addr.String() + "/", "jobs": len(s.Jobs())}); err != nil {
			return err
		}
	} else {
		c.printf("%d jobs at http://%s/\n", len(s.Jobs()), server.Addr)
	}
	for ipc.Sleep(ctx, every) == nil {
		if err := s.Refresh(ctx); err != nil && ctx.Err() == nil {
			c.notef("%v", err)
		}
	}
	return nil
}
