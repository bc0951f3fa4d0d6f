package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"

	"github.com/thalweg/thalweg/test/rig"
)

const upHelp = `usage: rig up [flags] [daemon...]

Starts a cluster in THALWEG_CLUSTER_DIR (default .cluster of the checkout), as far as it is not up, and waits until it serves.
Without flags it is the one that THALWEG_RIG names, else what it was before, else the simple one. Clusters in several folders run beside each other: give each
another THALWEG_PORT_BASE (blocks of 100 ports, from 18000 on). "rig env" prints what a shell needs to use it.

A folder keeps its data over "rig down"; simple or secured, one NameNode or two, cannot be changed with them ("rig down -purge").

flags:
`

const upExamples = `
examples:
  rig up                                                       the simple cluster
  rig up --security kerberos                                   secured, RPC and data authenticated
  rig up --security kerberos --rpc-protection privacy --data-protection privacy,integrity --rm-ha
  rig up namenode datanode                                     HDFS alone
  THALWEG_RIG=kerberos,privacy,nn-ha rig up                    the same by the variable that tests read

THALWEG_RIG is made of ` + rig.VariantHelp + "\n"

// up reads the flags of "rig up"; each is a word of the variant.
func up(ctx context.Context, args []string, out, progress io.Writer) error {
	var words []string
	fs := flag.NewFlagSet("rig up", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	word := func(name, w, usage string) {
		fs.BoolFunc(name, usage, func(v string) error {
			if v != "true" {
				return fmt.Errorf("it takes no value")
			}
			words = append(words, w)
			return nil
		})
	}
	level := func(name, key, usage string) {
		fs.Func(name, usage, func(v string) error {
			words = append(words, key+"="+strings.ReplaceAll(v, ",", "+"))
			return nil
		})
	}
	fs.Func("security", "`simple or kerberos`", func(v string) error {
		if v != "simple" && v != "kerberos" {
			return errors.New("expected simple or kerberos")
		}
		words = append(words, v)
		return nil
	})
	level("rpc-protection", "rpc", "hadoop.rpc.protection: a `level`, or several separated by commas, of authentication (default), integrity, privacy")
	level("data-protection", "data", "dfs.data.transfer.protection: as above")
	word("data-encryption", "encrypt", "dfs.encrypt.data.transfer=true")
	word("data-cipher", "aes", "AES/CTR/NoPadding as the cipher suite of data transfer")
	word("spnego", "spnego", "SPNEGO on the web pages and REST interfaces of Hadoop's daemons")
	word("short-tokens", "short-tokens", "delegation tokens are renewed for 1 min and live for 2 min")
	word("rm-ha", "rm-ha", "two ResourceManagers with automatic failover")
	word("nn-ha", "nn-ha", "two NameNodes with automatic failover")
	err := fs.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		_, _ = io.WriteString(out, upHelp)
		fs.SetOutput(out)
		fs.PrintDefaults()
		_, _ = io.WriteString(out, upExamples)
		return nil
	}
	if err != nil {
		return fmt.Errorf("rig: up: %w; rig up --help explains", err)
	}
	_, err = rig.Start(ctx, rig.Options{Variant: strings.Join(words, ","), Daemons: fs.Args(), Progress: progress})
	return err
}
