package am

import (
	"fmt"
	"maps"
	"strings"

	"github.com/thalweg/thalweg/am/container"
	"github.com/thalweg/thalweg/am/login"
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/config/memory"
	"github.com/thalweg/thalweg/staging"
	yarnpb "github.com/thalweg/thalweg/yarnrpc/proto/yarn"
	"github.com/thalweg/thalweg/yarnrpc/token"
	"github.com/thalweg/thalweg/yarnrpc/yarn"
)

// Names of the two programs, here and on the nodes.
const (
	MasterBinary      = "thalweg-appmaster"
	TaskManagerBinary = "thalweg-taskmanager"

	masterEnvPrefix      = "containerized.master.env."
	taskManagerEnvPrefix = "containerized.taskmanager.env."
)

// command is what bash runs: the program takes its place, so that no shell stays beside it and signals reach it. A file that the system does not
// run is compared with its hash then, and what is wrong with it goes to where the NodeManager takes its diagnostics from: a start that
// succeeds does not pay for that. <LOG_DIR> is replaced by YARN, which puts the whole between double quotes: no $ and none of them here.
//
// Source: ContainerLaunch.ShellScriptBuilder, UnixShellScriptBuilder.command, Hadoop 3.4.
func command(binary, log string, f container.File) []string {
	uri := f.URI
	if strings.Trim(uri, plain) != "" {
		uri = f.Name // its folder has characters that a shell knows
	}
	if f.SHA256 == "" { // of a provided folder
		return []string{fmt.Sprintf("exec ./%[1]s 1><LOG_DIR>/%[2]s.out 2><LOG_DIR>/%[2]s.err", binary, log)}
	}
	return []string{fmt.Sprintf("shopt -s execfail; exec ./%[1]s 1><LOG_DIR>/%[2]s.out 2><LOG_DIR>/%[2]s.err; "+
		"echo '%[3]s  %[1]s' | sha256sum --status -c - || "+
		"echo '%[1]s: the content of the staged file %[4]s, or of the copy on this node, does not match its name: remove the file and submit again' | tee -a <LOG_DIR>/prelaunch.err >&2; exit 126",
		binary, log, f.SHA256, uri)}
}

// plain are the characters of a URI that mean nothing to a shell between single quotes in double ones.
const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:/._-+@%~,="

// environment are the variables of a container: those of the Go runtime, and the user's own (containerized.*.env.*), which win.
func environment(c config.Configuration, limit config.Bytes, cores int, prefix string) map[string]string {
	env := memory.Environment(limit, cores)
	env["THALWEG_LOG_LEVEL"] = config.LogLevel.Value(c)
	for k, v := range c {
		if name, ok := strings.CutPrefix(k, prefix); ok && name != "" {
			env[name] = v
		}
	}
	return env
}

// MasterLaunch is the launch context of the ApplicationMaster, with keytab and krb5.conf where it has them. creds are the tokens for the
// cluster's services; app is added to a copy.
func MasterLaunch(app *container.Application, binary container.File, creds *token.Credentials) (*yarnpb.ContainerLaunchContextProto, error) {
	m := memory.ForMaster(app.Config)
	env := environment(app.Config, m.Process, m.Cores, masterEnvPrefix)
	lc, err := launch(app, MasterBinary, container.MasterLog, binary, env, creds)
	if err != nil {
		return nil, err
	}
	for name, f := range map[string]*container.File{config.LocalKeytab.Value(app.Config): app.Keytab, login.ConfName: app.KerberosConf} {
		if f == nil {
			continue
		}
		res, err := resource(*f)
		if err != nil {
			return nil, err
		}
		lc.LocalResources = append(lc.LocalResources, &yarnpb.StringLocalResourceMapProto{Key: &name, Value: res})
	}
	return lc, nil
}

// TaskManagerLaunch is the launch context of a TaskManager.
func TaskManagerLaunch(app *container.Application, creds *token.Credentials) (*yarnpb.ContainerLaunchContextProto, error) {
	t, err := memory.ForTaskManager(app.Config)
	if err != nil {
		return nil, err
	}
	env := environment(app.Config, t.Process*3/4, t.Cores, taskManagerEnvPrefix)
	return launch(app, TaskManagerBinary, container.TaskManagerLog, app.TaskManager, env, creds)
}

func resource(f container.File) (*yarnpb.LocalResourceProto, error) {
	return staging.Artifact{Name: f.Name, URI: f.URI, Size: f.Size, ModTime: f.ModTime, Public: f.Public, Archive: f.Archive}.Resource()
}

func launch(app *container.Application, name, log string, binary container.File, env map[string]string, creds *token.Credentials) (*yarnpb.ContainerLaunchContextProto, error) {
	res, err := resource(binary)
	if err != nil {
		return nil, err
	}
	c := creds.Clone()
	if err := app.Put(c); err != nil {
		return nil, err
	}
	tokens, err := c.Encode(token.Writable)
	if err != nil {
		return nil, err
	}
	resources := map[string]*yarnpb.LocalResourceProto{name: res}
	for _, f := range app.Files {
		if resources[f.Name], err = resource(f); err != nil {
			return nil, err
		}
	}
	lc := yarn.LaunchContext(command(name, log, binary), maps.Clone(env), resources, tokens)
	for kind, acl := range map[yarnpb.ApplicationAccessTypeProto]string{
		yarnpb.ApplicationAccessTypeProto_APPACCESS_VIEW_APP:   config.YarnViewACLs.Value(app.Config),
		yarnpb.ApplicationAccessTypeProto_APPACCESS_MODIFY_APP: config.YarnModifyACLs.Value(app.Config),
	} {
		if acl != "" {
			lc.Application_ACLs = append(lc.Application_ACLs, &yarnpb.ApplicationACLMapProto{AccessType: kind.Enum(), Acl: &acl})
		}
	}
	return lc, nil
}
