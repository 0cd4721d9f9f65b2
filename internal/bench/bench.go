package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"mediasandbox/rootfs"
)

// options are the command line.
type options struct {
	out, bin string
	media    string
	samples  int
	chats    int
	only     *regexp.Regexp
}

// minSamples is the least that medians and percentiles are taken over.
const minSamples = 30

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.out, "o", "docs/bench.md", "write the report to this `FILE`")
	flags.StringVar(&o.bin, "bin", "bin", "find the built programs in `DIR`")
	flags.StringVar(&o.media, "media", "testdata/media", "find hallway.avi in `DIR`")
	flags.IntVar(&o.samples, "samples", minSamples, "take `N` samples of each figure, at least 30")
	flags.IntVar(&o.chats, "chats", 50, "measure the daemon with `N` idle chats")
	only := flags.String("only", "", "run only the sections that match `REGEXP`: "+strings.Join(sectionNames(), ", "))
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 || o.samples < minSamples || o.chats < 1 {
		return o, fmt.Errorf("usage: no arguments, -samples at least %d, -chats at least 1", minSamples)
	}
	var err error
	if o.only, err = regexp.Compile(*only); err != nil {
		return o, fmt.Errorf("flag -only: %w", err)
	}
	for _, path := range []*string{&o.bin, &o.media} {
		if *path, err = filepath.Abs(*path); err != nil {
			return o, err
		}
	}
	return o, nil
}

// bench is one run.
type bench struct {
	options
	ctx   context.Context
	log   io.Writer
	dir   string
	image rootfs.Image
	// undo takes down what was made, the last first.
	undo []func() error

	main *daemon // with the default limits
	bare *bare
	root *chroot

	rows     []row
	details  []detail
	findings []string
}

// section measures some rows.
type section struct {
	name string
	run  func(*bench) error
}

// sections in their order. The one with many idle chats comes last, since they
// stay.
func sections() []section {
	return []section{
		{"create", (*bench).measureCreate},
		{"empty", (*bench).measureEmptyPool},
		{"warm", (*bench).measureWarmTrue},
		{"python", (*bench).measureWarmPython},
		{"first-python", (*bench).measureFirstPython},
		{"work", (*bench).measureWork},
		{"trim", (*bench).measureTrim},
		{"burst", (*bench).measureBurst},
		{"publish", (*bench).measurePublish},
		{"gate", (*bench).measureGate},
		{"bare-memory", (*bench).measureWithoutPython},
		{"idle", (*bench).measureIdle},
	}
}

func sectionNames() []string {
	var names []string
	for _, s := range sections() {
		names = append(names, s.name)
	}
	return names
}

func run(ctx context.Context, args []string, log io.Writer) (err error) {
	o, err := parse(args, log)
	if err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return errors.New("it needs root, as sandboxd does")
	}
	b := &bench{options: o, ctx: ctx, log: log}
	defer func() {
		err = errors.Join(err, b.close())
		if b.dir != "" {
			err = errors.Join(err, clearDir(b.dir))
		}
	}()
	before, err := b.prepare()
	if err != nil {
		return err
	}
	for _, s := range sections() {
		if !o.only.MatchString(s.name) {
			continue
		}
		began := time.Now()
		fmt.Fprintf(log, "bench: %s", s.name)
		if err := s.run(b); err != nil {
			fmt.Fprintln(log)
			return errors.Join(fmt.Errorf("measure %s: %w", s.name, err), context.Cause(ctx))
		}
		fmt.Fprintf(log, "\n  took %s\n", time.Since(began).Round(time.Second))
	}
	return b.write(before)
}

// prepare makes everything that the sections share.
func (b *bench) prepare() (hostFacts, error) {
	cache, err := rootfs.CacheDir("")
	if err != nil {
		return hostFacts{}, err
	}
	if b.image, err = rootfs.Locate(cache); err != nil {
		return hostFacts{}, err
	}
	// Short, since the path of a Unix socket holds 107 bytes.
	if b.dir, err = os.MkdirTemp("/tmp", "msbench"); err != nil {
		return hostFacts{}, fmt.Errorf("make a working directory: %w", err)
	}
	before, err := lookAtHost()
	if err != nil {
		return before, err
	}
	if b.root, err = b.newChroot(); err != nil {
		return before, err
	}
	if b.main, err = b.startDaemon("main", nil); err != nil {
		return before, err
	}
	b.bare, err = b.newBare()
	return before, err
}

func (b *bench) defers(f func() error) { b.undo = append(b.undo, f) }

// close takes everything down and says what could not be.
func (b *bench) close() error {
	var errs []error
	for len(b.undo) > 0 {
		last := len(b.undo) - 1
		errs = append(errs, b.undo[last]())
		b.undo = b.undo[:last]
	}
	return errors.Join(errs...)
}

// tick shows progress.
func (b *bench) tick() { fmt.Fprint(b.log, ".") }

// write writes the report whole or not at all.
func (b *bench) write(before hostFacts) error {
	after, err := lookAtHost()
	if err != nil {
		return err
	}
	versions, err := b.versions()
	if err != nil {
		return err
	}
	var text bytes.Buffer
	report{
		samples: b.samples, partial: b.only.String() != "", before: before, after: after, versions: versions,
		rows: b.rows, details: b.details, findings: b.findings,
	}.print(&text)
	if err := os.MkdirAll(filepath.Dir(b.out), 0o755); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	if err := os.WriteFile(b.out+".new", text.Bytes(), 0o644); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	if err := os.Rename(b.out+".new", b.out); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}
