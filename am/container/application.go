package container

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/internal/version"
	"github.com/thalweg/thalweg/yarnrpc/conf"
	"github.com/thalweg/thalweg/yarnrpc/token"
)

// File is a staged file.
type File struct {
	Name    string    `json:"name"`
	URI     string    `json:"uri"`
	SHA256  string    `json:"sha256"`
	Size    int64     `json:"size"`
	ModTime time.Time `json:"modTime"`           // as the store tells it, in milliseconds
	Archive bool      `json:"archive,omitempty"` // YARN unpacks it
	Public  bool      `json:"public"`            // everybody can read it, so that YARN may localise it once per node
}

// Application is what the client hands to the ApplicationMaster and the master to its TaskManagers, in the containers' credentials.
type Application struct {
	Protocol int    `json:"protocol"` // version.Protocol of who wrote it
	Version  string `json:"version"`
	ID       string `json:"id"`   // application_<timestamp>_<number>
	Name     string `json:"name"` // of the application; the job's own when empty
	User     string `json:"user"`
	// Config is the effective configuration: file and -D options.
	Config config.Configuration `json:"config"`
	// Hadoop is the client's Hadoop configuration, which the nodes need not have.
	Hadoop map[string]string `json:"hadoop"`
	// Session says that the application takes jobs, and has none of its own: JobID, Artifact and Args are empty.
	Session bool `json:"session,omitempty"`
	// JobID is drawn by the client, so that it can name it at once. 32 hex digits.
	JobID string `json:"jobId"`
	// Artifact is the job's binary, fetched by who runs it.
	Artifact File     `json:"artifact"`
	Args     []string `json:"args,omitempty"`
	// Staging is the URI of the application's folder, removed at the end; HA that of its high-availability data, in it by default.
	Staging string `json:"staging"`
	HA      string `json:"ha"`
	// TaskManager is the staged TaskManager binary.
	TaskManager File `json:"taskManager"`
	// Keytab and KerberosConf are the staged keytab and krb5.conf, for the master alone; nil when it gets none.
	Keytab       *File `json:"keytab,omitempty"`
	KerberosConf *File `json:"kerberosConf,omitempty"`
	// Files go to every container's folder, by their names, which may hold folders.
	Files []File `json:"files,omitempty"`
	// Token is the secret of the control plane of this application.
	Token string `json:"token"`
	// Submitted is when the client began, in milliseconds since 1970; the phases of a start are counted from it.
	Submitted int64 `json:"submitted"`

	// Leader is the master's address, for TaskManagers; the leader file of HA tells newer ones.
	Leader string `json:"leader,omitempty"`
	Epoch  int64  `json:"epoch,omitempty"`
}

// SessionTag is the tag among YARN's of every session.
const SessionTag = "thalweg-session"

// secretAlias is the alias of the Application among the credentials' secrets.
const secretAlias = "thalweg.application"

// ErrNoApplication says that the credentials carry no Application: the process was not started by Thalweg on YARN.
var ErrNoApplication = errors.New("container: no application among the credentials: this program is started by thalweg run --target yarn-application")

// Put stores the application among the credentials.
func (a *Application) Put(c *token.Credentials) error {
	b, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("container: encode application: %w", err)
	}
	c.PutSecret(secretAlias, b)
	return nil
}

// FromCredentials reads the application from the credentials.
//
// Errors: ErrNoApplication; *ProtocolError.
func FromCredentials(c *token.Credentials) (*Application, error) {
	b, ok := c.Secret(secretAlias)
	if !ok {
		return nil, ErrNoApplication
	}
	var a Application
	if err := json.Unmarshal(b, &a); err != nil {
		return nil, fmt.Errorf("container: decode application: %w", err)
	}
	if a.Protocol != version.Protocol {
		return nil, &ProtocolError{What: "the client", Version: a.Version, Protocol: a.Protocol}
	}
	return &a, nil
}

// ProtocolError says that two parts of the product do not fit.
type ProtocolError struct {
	What     string // "the client", "the job's binary"
	Version  string
	Protocol int
}

func (e *ProtocolError) Error() string {
	return fmt.Sprintf("protocol mismatch: %s is version %s with protocol %d, this is version %s with protocol %d: build both with the same release",
		e.What, e.Version, e.Protocol, version.Version, version.Protocol)
}

// hadoopPrefixes are passed through from Thalweg's configuration to Hadoop's.
var hadoopPrefixes = []string{"flink.hadoop.", "thalweg.hadoop.", "flink.yarn."}

// HadoopConfiguration is the application's Hadoop configuration.
func (a *Application) HadoopConfiguration() *conf.Configuration {
	return conf.FromMap(a.Hadoop)
}
