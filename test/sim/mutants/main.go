// Command mutants shows the power of test/sim: it plants one hand-made fault after another in the product, by the go command's overlay, so
// that no file is changed, and lets the simulation look for it. It prints how many were caught, and fails unless all were.
//
//	go run ./test/sim/mutants [-n 400] [-run NAME]
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// mutant replaces Old, which stands once in File, by New.
type mutant struct{ Name, File, Old, New string }

func main() {
	n := flag.Int("n", 400, "seeds for each mutant")
	run := flag.String("run", "", "regular expression of names")
	flag.Parse()
	if err := all(*n, *run); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func all(n int, run string) error {
	which, err := regexp.Compile(run)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	var errs []error
	for _, m := range mutants {
		_, err := m.source()
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	tried, missed := 0, []string(nil)
	for _, m := range mutants {
		if !which.MatchString(m.Name) {
			continue
		}
		tried++
		began := time.Now()
		seed, err := m.try(dir, n)
		if err != nil { // it does not compile
			errs = append(errs, fmt.Errorf("%s: %w", m.Name, err))
			continue
		}
		if seed == "" {
			missed = append(missed, m.Name)
			seed = "MISSED"
		}
		fmt.Printf("%-70s %s  (%.0fs)\n", m.Name, seed, time.Since(began).Seconds())
	}
	fmt.Printf("%d of %d caught\n", tried-len(missed), tried)
	if len(missed) > 0 {
		errs = append(errs, fmt.Errorf("not caught within %d seeds: %s", n, strings.Join(missed, ", ")))
	}
	return errors.Join(errs...)
}

// source is the file without the fault, in which its place stands once.
func (m mutant) source() (string, error) {
	src, err := os.ReadFile(m.File)
	if err != nil {
		return "", err
	}
	if c := strings.Count(string(src), m.Old); c != 1 {
		return "", fmt.Errorf("%s: its place stands %d times in %s: bring the table up to date", m.Name, c, m.File)
	}
	return string(src), nil
}

var caught = regexp.MustCompile(`(?m)seed \d+: .*|panic: .*|too rare: .*`)

// try builds the simulation with the mutant and runs it. It returns what was found, "" for nothing.
func (m mutant) try(dir string, n int) (string, error) {
	file, err := filepath.Abs(m.File)
	if err != nil {
		return "", err
	}
	src, err := m.source()
	if err != nil {
		return "", err
	}
	changed, overlay, bin := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "sim.test")
	b, err := json.Marshal(map[string]map[string]string{"Replace": {file: changed}})
	if err != nil {
		return "", err
	}
	err = errors.Join(os.WriteFile(changed, []byte(strings.Replace(src, m.Old, m.New, 1)), 0o600), os.WriteFile(overlay, b, 0o600))
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", overlay, "-o", bin, "./test/sim").CombinedOutput(); err != nil { //nolint:gosec // as above
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	out, err := exec.CommandContext(ctx, bin, "-test.run", "TestSim$", "-test.timeout", "4m", "-n", fmt.Sprint(n), "-shrink=false").CombinedOutput() //nolint:gosec // as above
	if err == nil {
		return "", nil
	}
	found := caught.FindString(string(out))
	if found == "" {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return fmt.Sprintf("%.150s", found), nil
}
