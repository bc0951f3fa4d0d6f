package am

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/internal/version"
	"github.com/thalweg/thalweg/runtime/dispatcher"
	"github.com/thalweg/thalweg/staging"
	"github.com/thalweg/thalweg/yarnrpc/conf"
	"github.com/thalweg/thalweg/yarnrpc/token"
)

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
	// JobID is drawn by the client, so that it can name it at once. 32 hex digits.
	JobID    string              `json:"jobId"`
	Artifact dispatcher.Artifact `json:"artifact"`
	Args     []string            `json:"args,omitempty"`
	// Staging is the URI of the application's folder, removed at the end; HA that of its high-availability data, in it by default.
	Staging string `json:"staging"`
	HA      string `json:"ha"`
	// TaskManager is the staged TaskManager binary.
	TaskManager staging.Artifact `json:"taskManager"`
	// Token is the secret of the control plane of this application.
	Token string `json:"token"`
	// Submitted is when the client began, in milliseconds since 1970; the phases of a start are counted from it.
	Submitted int64 `json:"submitted"`

	// Leader is the master's address, for TaskManagers; the leader file of HA tells newer ones.
	Leader string `json:"leader,omitempty"`
	Epoch  int64  `json:"epoch,omitempty"`
}

// secretAlias is the alias of the Application among the credentials' secrets.
const secretAlias = "thalweg.application"

// ErrNoApplication says that the credentials carry no Application: the process was not started by Thalweg on YARN.
var ErrNoApplication = errors.New("am: no application among the credentials: this program is started by thalweg run --target yarn-application")

// Put stores the application among the credentials.
func (a *Application) Put(c *token.Credentials) error {
	b, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("am: encode application: %w", err)
	}
	c.PutSecret(secretAlias, b)
	return nil
}

// ApplicationFrom reads the application from the credentials.
//
// Errors: ErrNoApplication; *ProtocolError.
func ApplicationFrom(c *token.Credentials) (*Application, error) {
	b, ok := c.Secret(secretAlias)
	if !ok {
		return nil, ErrNoApplication
	}
	var a Application
	if err := json.Unmarshal(b, &a); err != nil {
		return nil, fmt.Errorf("am: decode application: %w", err)
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
