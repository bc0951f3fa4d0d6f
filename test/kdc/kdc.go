package kdc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// DefaultRealm is the realm of a KDC that names none.
const DefaultRealm = "EXAMPLE.TEST"

// DefaultEnctypes are the key types of new principals: those that every Kerberos library of this decade knows.
const DefaultEnctypes = "aes256-cts-hmac-sha1-96 aes128-cts-hmac-sha1-96"

const toolWait = 30 * time.Second

// Options describe a realm. Dir and Port are needed.
type Options struct {
	Dir   string // folder of the realm; made when it is missing
	Port  int    // TCP and UDP, on 127.0.0.1
	Realm string // default DefaultRealm
	// Enctypes are the key types of new principals, separated by blanks; default DefaultEnctypes.
	Enctypes string
	// TicketLife and RenewLife bound tickets; default 24 h and 7 days. They are written anew by each Create; principals keep what they were made with.
	TicketLife, RenewLife time.Duration
	// UDP lets clients try UDP first, which is MIT's default. Otherwise they use TCP alone (udp_preference_limit = 1).
	UDP bool
	// LibDefaults are more lines of [libdefaults] in krb5.conf, over those of this package.
	LibDefaults map[string]string
}

// KDC is a realm. Its methods may be called from several goroutines, but those that write the same keytab.
type KDC struct {
	Dir   string
	Realm string
	Port  int

	opts  Options
	tools map[string]string // program to path
}

// AptLine says how to get MIT's programs.
const AptLine = "install them with: apt-get install -y --no-install-recommends krb5-kdc krb5-admin-server krb5-user"

// New looks for MIT's programs and returns the realm in opts.Dir, whether it was created already or not. It writes nothing.
func New(opts Options) (*KDC, error) {
	if opts.Dir == "" || opts.Port == 0 {
		return nil, errors.New("kdc: Dir and Port are needed")
	}
	dir, err := filepath.Abs(opts.Dir)
	if err != nil {
		return nil, fmt.Errorf("kdc: folder %s: %w", opts.Dir, err)
	}
	if opts.Realm == "" {
		opts.Realm = DefaultRealm
	}
	if opts.Enctypes == "" {
		opts.Enctypes = DefaultEnctypes
	}
	if opts.TicketLife == 0 {
		opts.TicketLife = 24 * time.Hour
	}
	if opts.RenewLife == 0 {
		opts.RenewLife = 7 * 24 * time.Hour
	}
	k := &KDC{Dir: dir, Realm: opts.Realm, Port: opts.Port, opts: opts, tools: map[string]string{}}
	var missing []string
	for _, name := range []string{"krb5kdc", "kdb5_util", "kadmin.local", "kinit"} {
		path, err := find(name)
		if err != nil {
			missing = append(missing, name)
		}
		k.tools[name] = path
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("kdc: MIT Kerberos is not installed (no %s): %s", strings.Join(missing, ", "), AptLine)
	}
	return k, nil
}

// find looks in PATH and where Debian puts programs of an administrator.
func find(name string) (string, error) {
	if p, err := exec.LookPath(name); err == nil {
		return p, nil
	}
	return exec.LookPath(filepath.Join("/usr/sbin", name))
}

// Config is the path of krb5.conf.
func (k *KDC) Config() string { return filepath.Join(k.Dir, "krb5.conf") }

// LogFile is the KDC's own log: one line per request.
func (k *KDC) LogFile() string { return filepath.Join(k.Dir, "kdc.log") }

// PIDFile is written by the KDC when it starts; its name is on the command line, and tells the process from others.
func (k *KDC) PIDFile() string { return filepath.Join(k.Dir, "krb5kdc.pid") }

func (k *KDC) profile() string  { return filepath.Join(k.Dir, "kdc.conf") }
func (k *KDC) database() string { return filepath.Join(k.Dir, "principal") }
func (k *KDC) stash() string    { return filepath.Join(k.Dir, "stash") }

// Addr is where the KDC listens, host:port.
func (k *KDC) Addr() string { return net.JoinHostPort("localhost", strconv.Itoa(k.Port)) }

// Env returns what clients and servers of this realm need in their environment, as KEY=value: KRB5_CONFIG.
func (k *KDC) Env() []string { return []string{"KRB5_CONFIG=" + k.Config()} }

// ServerEnv is the environment of the KDC and its tools.
func (k *KDC) ServerEnv() []string {
	return append(k.Env(), "KRB5_KDC_PROFILE="+k.profile(), "LANG=C.UTF-8", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
}

// Argv is the command line of the KDC: it stays in the foreground and ends by SIGTERM.
func (k *KDC) Argv() []string { return []string{k.tools["krb5kdc"], "-n", "-P", k.PIDFile()} }

// Create writes the configuration and, when there is none, the database. It may be called again, also with another port.
func (k *KDC) Create(ctx context.Context) error {
	if err := os.MkdirAll(k.Dir, 0o755); err != nil {
		return fmt.Errorf("kdc: create: %w", err)
	}
	for path, text := range map[string]string{k.Config(): k.krb5Conf(), k.profile(): k.kdcConf(), filepath.Join(k.Dir, "kadm5.acl"): ""} {
		tmp := path + ".tmp"
		if err := os.WriteFile(tmp, []byte(text), 0o644); err != nil {
			return fmt.Errorf("kdc: create: %w", err)
		}
		if err := os.Rename(tmp, path); err != nil {
			return fmt.Errorf("kdc: create: %w", err)
		}
	}
	if _, err := os.Stat(k.stash()); err == nil { // the last file that the tool writes
		return nil
	}
	old, err := filepath.Glob(k.database() + "*")
	if err != nil {
		return fmt.Errorf("kdc: create: %w", err)
	}
	for _, f := range old {
		if err := os.Remove(f); err != nil {
			return fmt.Errorf("kdc: create: %w", err)
		}
	}
	// The master key protects a database of test principals on this machine: its password is no secret.
	_, err = k.run(ctx, "", "kdb5_util", "create", "-s", "-r", k.Realm, "-P", "master-key-of-a-test-realm")
	return err
}

func (k *KDC) krb5Conf() string {
	lib := map[string]string{
		"default_realm": k.Realm, "dns_lookup_kdc": "false", "dns_lookup_realm": "false", "dns_canonicalize_hostname": "false", "rdns": "false",
		"forwardable": "true", "ticket_lifetime": seconds(k.opts.TicketLife), "renew_lifetime": seconds(k.opts.RenewLife),
		"default_ccache_name": "FILE:" + filepath.Join(k.Dir, "ticket.%{uid}"),
	}
	if !k.opts.UDP {
		lib["udp_preference_limit"] = "1"
	}
	for key, v := range k.opts.LibDefaults {
		lib[key] = v
	}
	var b bytes.Buffer
	b.WriteString("[libdefaults]\n")
	for _, key := range sorted(lib) {
		fmt.Fprintf(&b, "  %s = %s\n", key, lib[key])
	}
	fmt.Fprintf(&b, "[realms]\n  %s = {\n    kdc = %s\n  }\n[domain_realm]\n  localhost = %s\n", k.Realm, k.Addr(), k.Realm)
	return b.String()
}

func (k *KDC) kdcConf() string {
	listen := net.JoinHostPort("127.0.0.1", strconv.Itoa(k.Port))
	types := strings.Join(strings.Fields(k.opts.Enctypes), ":normal ") + ":normal"
	return fmt.Sprintf(`[kdcdefaults]
  kdc_listen = %s
  kdc_tcp_listen = %s
[realms]
  %s = {
    database_name = %s
    key_stash_file = %s
    acl_file = %s
    admin_keytab = FILE:%s
    master_key_type = %s
    supported_enctypes = %s
    max_life = %s
    max_renewable_life = %s
  }
[logging]
  kdc = FILE:%s
  default = FILE:%s
`, listen, listen, k.Realm, k.database(), k.stash(), filepath.Join(k.Dir, "kadm5.acl"), filepath.Join(k.Dir, "kadm5.keytab"),
		strings.Fields(k.opts.Enctypes)[0], types, seconds(k.opts.TicketLife), seconds(k.opts.RenewLife), k.LogFile(), k.LogFile())
}

func seconds(d time.Duration) string { return strconv.Itoa(int(d/time.Second)) + "s" }

// Principal completes a name with the realm.
func (k *KDC) Principal(name string) string {
	if strings.Contains(name, "@") {
		return name
	}
	return name + "@" + k.Realm
}

// Has says whether the principal exists.
func (k *KDC) Has(ctx context.Context, principal string) (bool, error) {
	out, err := k.run(ctx, "", "kadmin.local", "listprincs", k.Principal(principal))
	return err == nil && strings.Contains(out, k.Principal(principal)), err
}

// AddPrincipal makes the principal, with random keys or, when password is not empty, with those of the password, unless it exists. More are options of
// kadmin's add_principal, such as "-maxlife", "2 minutes" or "+requires_preauth".
func (k *KDC) AddPrincipal(ctx context.Context, principal, password string, more ...string) error {
	there, err := k.Has(ctx, principal)
	if err != nil || there {
		return err
	}
	args := []string{"addprinc", "-randkey"}
	if password != "" {
		args = []string{"addprinc", "-pw", password}
	}
	_, err = k.run(ctx, "", "kadmin.local", append(append(args, more...), k.Principal(principal))...)
	return err
}

// DeletePrincipal removes a principal; its keytabs are worth nothing then.
func (k *KDC) DeletePrincipal(ctx context.Context, principal string) error {
	_, err := k.run(ctx, "", "kadmin.local", "delprinc", "-force", k.Principal(principal))
	return err
}

// Keytab writes the present keys of the principals, which must exist, to a new file (mode 0600), in place of one that is there.
func (k *KDC) Keytab(ctx context.Context, file string, principals ...string) error {
	tmp := file + ".tmp"
	if err := os.Remove(tmp); err != nil && !errors.Is(err, iofs.ErrNotExist) {
		return fmt.Errorf("kdc: keytab %s: %w", file, err)
	}
	for _, p := range principals {
		if _, err := k.run(ctx, "", "kadmin.local", "ktadd", "-norandkey", "-k", tmp, k.Principal(p)); err != nil {
			return err
		}
	}
	if err := os.Rename(tmp, file); err != nil {
		return fmt.Errorf("kdc: keytab %s: no keys of %s were written: %w", file, strings.Join(principals, ", "), err)
	}
	return nil
}

// Kinit gets a ticket by the keytab and puts it into the ticket cache, a plain file. The KDC must run. More are options of kinit, such as
// "-l", "1m", "-r", "2m".
func (k *KDC) Kinit(ctx context.Context, principal, keytab, cache string, more ...string) error {
	args := append([]string{"-c", "FILE:" + cache, "-k", "-t", keytab}, more...)
	_, err := k.run(ctx, "", "kinit", append(args, k.Principal(principal))...)
	return err
}

// KinitPassword is Kinit with a password.
func (k *KDC) KinitPassword(ctx context.Context, principal, password, cache string, more ...string) error {
	args := append([]string{"-c", "FILE:" + cache}, more...)
	_, err := k.run(ctx, password+"\n", "kinit", append(args, k.Principal(principal))...)
	return err
}

// run runs one of MIT's programs. kadmin.local ends with 0 after most failures and says them on standard error.
func (k *KDC) run(ctx context.Context, stdin, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, toolWait)
	defer cancel()
	cmd := exec.CommandContext(ctx, k.tools[name], args...)
	cmd.Env, cmd.WaitDelay, cmd.Stdin = k.ServerEnv(), time.Second, strings.NewReader(stdin)
	var out, bad bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &bad
	err := cmd.Run()
	said := reason(bad.String())
	if err == nil && name == "kadmin.local" && said != "" {
		err = errors.New("it did not do it")
	}
	if err != nil {
		return "", fmt.Errorf("kdc: %s %s: %w: %s", name, strings.Join(args, " "), err, said)
	}
	return out.String(), nil
}

// reason is the last line of a program's complaints, without its remarks on what is usual here.
func reason(stderr string) string {
	last := ""
	for line := range strings.Lines(stderr) {
		if line = strings.TrimSpace(line); line != "" && !strings.Contains(line, "o policy specified for") && !strings.Contains(line, "Make sure that you have removed") {
			last = line
		}
	}
	return last
}
