package rigtest

import (
	"testing"

	"github.com/thalweg/thalweg/test/rig"
)

// Need is what a test asks of a cluster, in the words that follow "needs" where a cluster does not have it.
type Need string

// What not every kind of cluster has.
const (
	Daemons          Need = "daemons and containers of this machine, which it kills, restarts and looks into"
	Names            Need = "users by their names alone (HADOOP_USER_NAME), as without Kerberos"
	Kerberos         Need = "Kerberos"
	ShortTokens      Need = "delegation tokens that soon end (short-tokens)"
	ResourceManagers Need = "two ResourceManagers (rm-ha)"
	NameNodes        Need = "two NameNodes (nn-ha)"
)

// has reports whether c is of a kind that has it.
func (n Need) has(c *rig.Cluster) bool {
	switch n {
	case Daemons:
		return !c.External
	case Names:
		return !c.Variant.Kerberos
	case Kerberos:
		return c.Variant.Kerberos
	case ShortTokens:
		return c.Variant.ShortTokens
	case ResourceManagers:
		return c.Variant.RMHA
	case NameNodes:
		return c.Variant.NNHA
	}
	return false
}

// Kind is the kind of a cluster, as make test-matrix names it.
func Kind(c *rig.Cluster) string {
	if c.External {
		return "external"
	}
	return c.Variant.String()
}

// Needs skips a test on a cluster of a kind that cannot have what it needs, and says so: "needs Kerberos: this cluster is simple". The matrix of
// make test-matrix shows these reasons, and takes a test that is skipped for another one for a failure.
func Needs(t testing.TB, c *rig.Cluster, all ...Need) {
	t.Helper()
	for _, n := range all {
		if !n.has(c) {
			t.Skipf("needs %s: this cluster is %s", n, Kind(c))
		}
	}
}
