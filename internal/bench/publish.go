package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/config"
	"mediasandbox/uploader/s3/s3test"
)

// writerSource writes the same file again for each line of its input, and
// prints when it had closed it. Arguments: path, bytes. The contents of a .npy
// are an array of NumPy's, a format that says how long it is; those of others
// are lines of text, whose writer may come back to append.
const writerSource = `import sys, time
import numpy

path, size = sys.argv[1], int(sys.argv[2])
noise = numpy.random.default_rng(1)
for line in sys.stdin:
    values = noise.integers(0, 256, size - 128, dtype=numpy.uint8)
    with open(path, "wb") as f:
        if path.endswith(".npy"):
            numpy.save(f, values)
        else:
            f.write(values[: size // 2].tobytes().hex().encode() + b"\n")
    print(time.time_ns(), flush=True)
`

// publishSizes are the files, in bytes.
var publishSizes = []struct {
	name  string
	file  string
	bytes int
	// target holds for the wait beside the transfer; 0 reports only.
	target float64
}{
	{"1 kB", "small.npy", 1000, 60}, {"1 MB", "middle.npy", 1_000_000, 60}, {"100 MB", "large.npy", 100_000_000, 0},
	{"1 kB of text", "lines.txt", 1000, 0},
}

const publishTimeout = 2 * time.Minute

// measurePublish takes the time from a writer's close to the event that says
// that the file is published, while the command goes on.
func (b *bench) measurePublish() error {
	if err := b.publishTo("local", b.main, b.plainCopies); err != nil {
		return err
	}
	server, err := b.startS3()
	if err != nil {
		return err
	}
	d, err := b.startOnS3(server)
	if err != nil {
		return err
	}
	// First, so that nothing before it has made the daemon larger.
	if err := b.hugeUpload(d); err != nil {
		return err
	}
	plain, err := newPlainS3(b.ctx, server)
	if err != nil {
		return err
	}
	if err := b.publishTo("S3", d, plain.transfers); err != nil {
		return err
	}
	return errors.Join(b.uploadThroughput(server, plain), d.stop())
}

// publishTo adds a row for each size. transfers says how long the bare bytes
// take into such a store.
func (b *bench) publishTo(store string, d *daemon, transfers func(size, n int) (sample, error)) error {
	for _, size := range publishSizes {
		b.tick()
		waits, err := d.publishTimes(size.file, size.bytes, b.samples)
		if err != nil {
			return fmt.Errorf("%s to %s: %w", size.name, store, err)
		}
		bare, err := transfers(size.bytes, b.samples)
		if err != nil {
			return fmt.Errorf("%s to %s: %w", size.name, store, err)
		}
		r := row{
			what: fmt.Sprintf("from close to published, %s, %s", size.name, store), unit: "ms", subject: waits,
			against: "the same bytes written to such a store and nothing else: a file with fsync, or a plain PutObject or multipart upload",
			base:    bare,
		}
		if size.target > 0 {
			r.targets = []target{atMost("p50", size.target+bare.p50())}
		}
		b.add(r)
	}
	return nil
}

// publishTimes lets a command write a file n times, each when the one before
// is published.
func (d *daemon) publishTimes(file string, size, n int) (sample, error) {
	ctx, cancel := context.WithTimeout(d.b.ctx, time.Duration(n)*publishTimeout)
	defer cancel()
	d.nextID++
	chat, err := d.CreateChat(ctx, api.NewChat{ID: "publish-" + strconv.Itoa(d.nextID)})
	if err != nil {
		return nil, err
	}
	cmd, err := d.Start(ctx, chat.ID, api.NewCommand{
		Python: writerSource, Args: []string{"/outputs/" + file, strconv.Itoa(size)}, Stream: true, Timeout: api.MaxTimeout.Seconds(),
	})
	if err != nil {
		return nil, err
	}
	lines, input := io.Pipe()
	fed := make(chan error, 1)
	go func() { fed <- d.Feed(ctx, chat.ID, cmd.ID, lines) }()
	published, err := d.publishedTimes(ctx, chat.ID, input, n)
	if err := errors.Join(err, input.Close(), <-fed); err != nil {
		return nil, err
	}
	ended, err := d.Wait(ctx, chat.ID, cmd.ID)
	if err != nil {
		return nil, err
	}
	closed, said, err := d.printed(ctx, ended)
	if err != nil || ended.State != api.StateSucceeded {
		return nil, fmt.Errorf("the writer ended as %s: %s: %w", ended.State, said, err)
	}
	waits, err := between(strings.Fields(closed), published)
	return waits, errors.Join(err, d.DeleteChat(ctx, chat.ID))
}

// publishedTimes asks for a file n times, and returns when each was published.
func (d *daemon) publishedTimes(ctx context.Context, chat string, input io.Writer, n int) ([]time.Time, error) {
	var at []time.Time
	done := errors.New("all are published")
	if _, err := io.WriteString(input, "next\n"); err != nil {
		return nil, err
	}
	err := d.Events(ctx, chat, 0, func(ev api.Event) error {
		if ev.Type != api.EventCellPublished {
			return nil
		}
		if at = append(at, time.Now()); len(at) == n {
			return done
		}
		_, err := io.WriteString(input, "next\n")
		return err
	})
	if !errors.Is(err, done) {
		return nil, fmt.Errorf("%d files were published: %w", len(at), err)
	}
	return at, nil
}

// between pairs what the guest's clock said with what this host's did.
func between(closed []string, published []time.Time) (sample, error) {
	if len(closed) != len(published) {
		return nil, fmt.Errorf("%d files were closed and %d published", len(closed), len(published))
	}
	var waits sample
	for i, text := range closed {
		at, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("read when a file was closed: %w", err)
		}
		waits.add(published[i].Sub(time.Unix(0, at)))
	}
	return waits, nil
}

// plainCopies writes files beside the daemon's state, each with an fsync.
func (b *bench) plainCopies(size, n int) (sample, error) {
	path, content := filepath.Join(b.dir, "plain"), make([]byte, size)
	var took sample
	for range n {
		began := time.Now()
		f, err := os.Create(path)
		if err != nil {
			return nil, err
		}
		_, err = f.Write(content)
		if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
			return nil, err
		}
		took.add(time.Since(began))
	}
	return took, os.Remove(path)
}

// startS3 starts an S3 server that ends with the run.
func (b *bench) startS3() (*s3test.Server, error) {
	data := filepath.Join(b.dir, "objects")
	if err := os.MkdirAll(data, 0o700); err != nil {
		return nil, err
	}
	server, err := s3test.Launch(b.ctx, data)
	if err != nil {
		return nil, err
	}
	b.defers(func() error { server.Kill(); return nil })
	return server, nil
}

// startOnS3 starts a daemon that keeps its cells on the server.
func (b *bench) startOnS3(server *s3test.Server) (*daemon, error) {
	key, secret := filepath.Join(b.dir, "key"), filepath.Join(b.dir, "secret")
	for path, value := range map[string]string{key: server.AccessKeyID, secret: server.SecretAccessKey} {
		if err := os.WriteFile(path, []byte(value), 0o600); err != nil {
			return nil, fmt.Errorf("write a credential: %w", err)
		}
	}
	return b.startConfigured("s3", func(c *config.Config) {
		c.Store.Kind = "s3"
		c.Store.S3 = config.S3{
			Bucket: server.Bucket, Region: server.Region, Endpoint: server.Endpoint, PathStyle: true, Prefix: "cells",
			PresignExpiry: config.Duration(time.Hour), AccessKeyFile: key, SecretKeyFile: secret,
		}
	})
}
