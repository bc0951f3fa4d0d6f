package rig

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Pinned versions of the daemons (the poms name the same ones).
const (
	HadoopVersion = "3.4.2"
	KafkaVersion  = "4.1.0"

	mavenPlugin  = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1"
	mavenTimeout = 10 * time.Minute
	minJava      = 17 // Kafka 4 brokers need 17; Hadoop 3.4 runs on it with --add-opens
)

//go:embed poms/hadoop.xml poms/kafka.xml poms/secure.xml
var poms embed.FS

const aptLine = "install it with: apt-get install -y --no-install-recommends openjdk-17-jdk-headless maven"

var javaVersion = regexp.MustCompile(`version "(\d+)(?:\.(\d+))?`)

// findJava returns the home of a JDK or JRE that can run the daemons: JAVA_HOME when set, else the java on PATH.
func findJava(ctx context.Context) (string, error) {
	home := os.Getenv("JAVA_HOME")
	if home == "" {
		p, err := exec.LookPath("java")
		if err != nil {
			return "", fmt.Errorf("rig: no Java on PATH and no JAVA_HOME: %s", aptLine)
		}
		if p, err = filepath.EvalSymlinks(p); err != nil {
			return "", fmt.Errorf("rig: find Java: %w", err)
		}
		home = filepath.Dir(filepath.Dir(p))
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, filepath.Join(home, "bin", "java"), "-version").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("rig: run %s/bin/java -version: %w (set JAVA_HOME to a JDK of version %d or later, or %s)", home, err, minJava, aptLine)
	}
	m := javaVersion.FindSubmatch(out)
	if m == nil {
		return "", fmt.Errorf("rig: %s/bin/java -version says %q: expected a version", home, firstLine(out))
	}
	if major, _ := strconv.Atoi(string(m[1])); major < minJava {
		return "", fmt.Errorf("rig: %s is Java %s, the daemons need %d or later: %s", home, m[1], minJava, aptLine)
	}
	return home, nil
}

// install makes sure that the jars of the named product lie in jarsDir and returns their folder. The folder's name carries a hash of
// the pom, so another version never mixes with this one. Maven's own repository (~/.m2) makes a second copy quick.
func (r *runner) install(ctx context.Context, jarsDir, product string) (string, error) {
	pom, err := poms.ReadFile("poms/" + product + ".xml")
	if err != nil {
		return "", fmt.Errorf("rig: pom of %s: %w", product, err)
	}
	sum := sha256.Sum256(pom)
	dir := filepath.Join(jarsDir, product+"-"+hex.EncodeToString(sum[:4]))
	if _, err := os.Stat(filepath.Join(dir, ".complete")); err == nil {
		return dir, nil
	}
	unlock, err := lockFile(ctx, filepath.Join(jarsDir, "lock"), mavenTimeout)
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(filepath.Join(dir, ".complete")); err == nil {
		return dir, nil
	}
	mvn, err := exec.LookPath("mvn")
	if err != nil {
		return "", fmt.Errorf("rig: no Maven on PATH (it fetches Hadoop and Kafka): %s", aptLine)
	}
	begin := time.Now()
	r.progress("fetching %s by Maven (the first time needs the network)", productTitle(product))
	tmp := dir + ".part"
	if err := os.RemoveAll(tmp); err != nil {
		return "", fmt.Errorf("rig: install %s: %w", product, err)
	}
	pomFile := filepath.Join(jarsDir, product+"-pom.xml")
	if err := writeFile(pomFile, pom, 0o644); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, mavenTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, mvn, "-q", "-B", "-f", pomFile, mavenPlugin+":copy-dependencies",
		"-DoutputDirectory="+tmp, "-DincludeScope=runtime", "-Dstyle.color=never")
	cmd.Dir = jarsDir
	cmd.Env = append(os.Environ(), "JAVA_HOME="+r.java)
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		logFile := filepath.Join(jarsDir, product+"-maven.log")
		_ = os.WriteFile(logFile, out, 0o644)
		return "", fmt.Errorf("rig: install %s by Maven: %w: %s (all of it: %s)", productTitle(product), err, mavenError(out), logFile)
	}
	if err := os.WriteFile(filepath.Join(tmp, ".complete"), nil, 0o644); err != nil {
		return "", fmt.Errorf("rig: install %s: %w", product, err)
	}
	if err := os.RemoveAll(dir); err != nil {
		return "", fmt.Errorf("rig: install %s: %w", product, err)
	}
	if err := os.Rename(tmp, dir); err != nil {
		return "", fmt.Errorf("rig: install %s: %w", product, err)
	}
	r.progress("%s is in %s (%.0f s)", productTitle(product), dir, time.Since(begin).Seconds())
	return dir, nil
}

func productTitle(product string) string {
	switch product {
	case "kafka":
		return "Kafka " + KafkaVersion
	case "secure":
		return "libhadoop.so"
	}
	return "Hadoop " + HadoopVersion
}

// mavenError picks the line of Maven's output that says why it failed.
func mavenError(out []byte) string {
	for line := range strings.Lines(string(out)) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "[ERROR] "); ok {
			return rest
		}
	}
	return firstLine(out)
}

func firstLine(b []byte) string {
	line, _, _ := bytes.Cut(bytes.TrimSpace(b), []byte("\n"))
	return string(line)
}
