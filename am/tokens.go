package am

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/thalweg/thalweg/am/container"
	"github.com/thalweg/thalweg/am/login"
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/yarnrpc/conf"
	"github.com/thalweg/thalweg/yarnrpc/ipc"
	"github.com/thalweg/thalweg/yarnrpc/token"
)

// firstTokenRetry is the wait after a login or the first tokens failed.
const firstTokenRetry = time.Second

// tokens are the delegation tokens of an application: those that it was started with, or, with a keytab, those that it obtains again
// and again. Its own clients of HDFS use the keytab then; the tokens are for TaskManagers, workers, and YARN's localisation.
type tokens struct {
	base   *token.Credentials // the container's, without the scheduler's token, which is the master's own
	file   *container.TokenFile
	keeper *login.Keeper // nil when there is no keytab

	mu      sync.Mutex
	current *token.Credentials
	tell    func(credentials []byte) // the TaskManagers; nil before there is a resource manager
}

func newTokens(dir string, creds *token.Credentials) (*tokens, error) {
	base := creds.Clone()
	for _, a := range base.Aliases() {
		if t, _ := base.Token(a); t.Kind == token.KindAMRM {
			base.Remove(a)
		}
	}
	file, err := container.NewTokenFile(dir, base)
	if err != nil {
		return nil, err
	}
	return &tokens{base: base, file: file, current: base}, nil
}

// launch are the credentials of a container that starts now.
func (t *tokens) launch() *token.Credentials {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.current.Clone()
}

// replace takes the tokens over. The container's of the same services are replaced; those that were obtained by others stay.
func (t *tokens) replace(c *token.Credentials) error {
	next := t.base.Clone()
	for _, a := range next.Aliases() {
		old, _ := next.Token(a)
		if _, ok := c.ByService(old.Kind, old.Service); ok {
			next.Remove(a)
		}
	}
	next.AddAll(c)
	b, err := container.FileTokens(next).Encode(token.Writable)
	if err != nil {
		return err
	}
	t.mu.Lock()
	t.current = next
	tell := t.tell
	t.mu.Unlock()
	if tell != nil {
		tell(b)
	}
	return t.file.Write(next)
}

// toldTo hands the tokens to tell, and all later ones.
func (t *tokens) toldTo(tell func([]byte)) error {
	t.mu.Lock()
	t.tell = tell
	c := t.current
	t.mu.Unlock()
	if t.keeper == nil {
		return nil // TaskManagers have the same ones from their launch
	}
	return t.replace(container.FileTokens(c))
}

// login says who the application is, and begins to keep its tokens. It waits for a KDC or NameNode that does not answer.
func (m *master) login(ctx, life context.Context, hadoop *conf.Configuration) (err error) {
	if m.tokens, err = newTokens(m.work, m.c.Credentials); err != nil {
		return err
	}
	for wait := firstTokenRetry; ; wait = min(2*wait, 10*time.Second) {
		m.who, err = login.Master(ctx, m.app.Config, hadoop, m.app.User, m.c.WorkDir, m.c.Credentials, m.log)
		if err == nil {
			break
		}
		if errors.Is(err, ipc.ErrLogin) || ipc.Sleep(ctx, wait) != nil {
			return err
		}
		m.log.Warn().Err(err).Msg("login failed, trying again")
	}
	if !m.who.Forever() || !config.TokensEnabled.Value(m.app.Config) {
		return nil
	}
	m.tokens.keeper = login.NewKeeper(m.app.Config, func(ctx context.Context) (*token.Credentials, time.Time, error) {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		c := m.app.Config
		return m.who.Obtain(ctx, c, hadoop, "", m.app.Staging, m.app.HA, config.CheckpointDir.Value(c), config.SavepointDir.Value(c))
	}, m.tokens.replace, m.log)
	soon, cancel := context.WithTimeout(ctx, 10*time.Second) // a NameNode that is away holds nothing else up
	next, err := m.tokens.keeper.Once(soon)
	cancel()
	if err != nil { // it is tried again beside what else begins, which uses the keytab
		m.log.Error().Err(err).Msg("delegation tokens could not be obtained")
		next = time.Now().Add(firstTokenRetry)
	}
	m.fetching.Go(func() { m.tokens.keeper.Keep(life, next) })
	return nil
}
