package integration

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/thalweg/thalweg/test/rig"
	"github.com/thalweg/thalweg/test/rig/rigtest"
)

// byKeytab are the options of a login by the keytab of a user of a secured cluster.
func byKeytab(user string) []string {
	return []string{"-Dsecurity.kerberos.login.keytab=" + cluster.Keytab(user), "-Dsecurity.kerberos.login.principal=" + cluster.Principal(user)}
}

// as makes a command line that of another user: by the name alone, or on a secured cluster by that user's keytab.
func as(user string) (env, conf []string) {
	if cluster.Variant.Kerberos {
		return nil, byKeytab(user)
	}
	return []string{"HADOOP_USER_NAME=" + user}, nil
}

// Bad logins and what does not fit the cluster get one clear line, and leave nothing.
func TestSecuredBadInput(t *testing.T) {
	rigtest.Needs(t, cluster, rigtest.Kerberos, rigtest.Daemons)
	k, err := cluster.KDC()
	if err != nil {
		t.Fatal(err)
	}
	cache := filepath.Join(t.TempDir(), "cache")
	if err := k.Kinit(t.Context(), rig.Alice, cluster.Keytab(rig.Alice), cache, "-l", "1s"); err != nil {
		t.Fatal(err)
	}
	<-time.After(1100 * time.Millisecond) // the ticket's life, of whole seconds
	other := rig.Privacy
	if strings.Contains(cluster.Variant.RPC, rig.Privacy) {
		other = rig.Authentication
	}
	for _, b := range []bad{
		{name: "no ticket", env: []string{"KRB5CCNAME=FILE:/nowhere"}, code: 2, want: []string{"/nowhere", "kinit"}},
		{name: "ticket that has ended", env: []string{"KRB5CCNAME=FILE:" + cache}, code: 2, want: []string{"alice@" + kdcRealm(), "ended at", "kinit"}},
		{name: "another realm", conf: []string{"-Dsecurity.kerberos.login.keytab=" + cluster.Keytab(rig.Alice), "-Dsecurity.kerberos.login.principal=alice@ELSEWHERE"}, code: 2,
			want: []string{"holds no key of alice@ELSEWHERE", cluster.Keytab(rig.Alice), "holds alice@" + kdcRealm()}},
		{name: "another user's keytab", conf: []string{"-Dsecurity.kerberos.login.keytab=" + cluster.Keytab(rig.Alice), "-Dsecurity.kerberos.login.principal=bob"}, code: 2,
			want: []string{"holds no key of bob@" + kdcRealm(), cluster.Keytab(rig.Alice), "holds alice@" + kdcRealm()}},
		{name: "another protection of RPC", conf: []string{"-Dthalweg.hadoop.hadoop.rpc.protection=" + other}, want: []string{"hadoop.rpc.protection", other}},
		{name: "another ResourceManager", conf: []string{"-Dthalweg.hadoop.yarn.resourcemanager.principal=nm/localhost@" + kdcRealm()},
			want: []string{"yarn.resourcemanager.principal", "nm/localhost"}},
		{name: "a queue without access", conf: []string{"-Dyarn.application.queue=alice"}, want: []string{"alice", "yarn.application.queue"}},
		{name: "to act for who is not allowed", env: []string{"HADOOP_PROXY_USER=bob"}, conf: byKeytab(rig.Gateway), want: []string{"gateway", "bob", "hadoop.proxyuser"}},
	} {
		t.Run(b.name, func(t *testing.T) { b.run(t) })
	}
}

func kdcRealm() string {
	_, realm, _ := strings.Cut(cluster.Principal("x"), "@")
	return realm
}
