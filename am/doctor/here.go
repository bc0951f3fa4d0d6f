package doctor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/thalweg/thalweg/am"
	"github.com/thalweg/thalweg/config/memory"
	"github.com/thalweg/thalweg/yarnrpc/conf"
)

// programs looks for the product's own programs and whether the memory of a TaskManager can be divided.
func programs(_ context.Context, p *Patient) (all []Finding) {
	const check = "programs"
	var missing []string
	for _, n := range []string{am.MasterBinary, am.TaskManagerBinary} {
		if info, err := os.Stat(filepath.Join(p.LibDir, n)); err != nil || !info.Mode().IsRegular() {
			missing = append(missing, n)
		}
	}
	if len(missing) > 0 {
		all = append(all, bad(check, fmt.Sprintf("%s lacks %s", p.LibDir, strings.Join(missing, " and ")), "put them beside the thalweg binary, or into the folder that THALWEG_LIB_DIR names"))
	} else {
		all = append(all, good(check, "application master and TaskManager are in "+p.LibDir))
	}
	if _, err := memory.ForTaskManager(p.Config); err != nil {
		return append(all, Failure("memory", err))
	}
	return append(all, good("memory", "the TaskManager's memory can be divided as configured"))
}

// hadoop looks where Hadoop's configuration comes from, and who acts.
func hadoop(_ context.Context, p *Patient) (all []Finding) {
	const check = "hadoop configuration"
	rms, err := p.Hadoop.ResourceManagers()
	switch dirs := p.Hadoop.Dirs(); {
	case len(dirs) == 0:
		all = append(all, bad(check, "no folder of configuration files was found", "set HADOOP_CONF_DIR to the folder of core-site.xml, hdfs-site.xml and yarn-site.xml"))
	case err != nil:
		all = append(all, Failure(check, err))
	case p.Hadoop.Source(conf.KeyDefaultFS) == "":
		all = append(all, bad(check, fmt.Sprintf("%s is not set in %s", conf.KeyDefaultFS, strings.Join(dirs, ", ")), "is HADOOP_CONF_DIR the folder of the cluster's clients?"))
	default:
		all = append(all, good(check, fmt.Sprintf("from %s; ResourceManager %s", strings.Join(dirs, ", "), strings.Join(rms, ", "))))
	}
	secure, err := p.Hadoop.Kerberos()
	switch {
	case err != nil:
		return append(all, Failure("login", err))
	case secure:
		return append(all, good("login", "as "+p.User+" by Kerberos"))
	}
	return append(all, good("login", "as "+p.User+", without Kerberos (hadoop.security.authentication=simple)"))
}
