package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/aws/aws-sdk-go-v2/feature/s3/transfermanager"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"mediasandbox/daemon/api"
	"mediasandbox/uploader"
	objects "mediasandbox/uploader/s3"
	"mediasandbox/uploader/s3/s3test"
)

const (
	// throughputSize and hugeSize are in bytes.
	throughputSize = 256 << 20
	hugeSize       = 3 << 30
	// multipartAbove is where the plain upload goes over to parts, as the
	// product does.
	multipartAbove = 16 << 20
)

// plainS3 is the SDK without us.
type plainS3 struct {
	ctx    context.Context
	client *s3.Client
	parts  *transfermanager.Client
	bucket string
}

func newPlainS3(ctx context.Context, server *s3test.Server) (*plainS3, error) {
	client := server.Client()
	return &plainS3{ctx: ctx, client: client, parts: transfermanager.New(client), bucket: server.Bucket}, nil
}

// put uploads a file in one request or in parts.
func (p *plainS3) put(key string, body io.ReadSeeker, size int) error {
	if size <= multipartAbove {
		_, err := p.client.PutObject(p.ctx, &s3.PutObjectInput{Bucket: &p.bucket, Key: &key, Body: body})
		return err
	}
	_, err := p.parts.UploadObject(p.ctx, &transfermanager.UploadObjectInput{Bucket: &p.bucket, Key: &key, Body: body})
	return err
}

func (p *plainS3) transfers(size, n int) (sample, error) {
	content := make([]byte, size)
	var took sample
	for range n {
		began := time.Now()
		if err := p.put("plain", bytes.NewReader(content), size); err != nil {
			return nil, err
		}
		took.add(time.Since(began))
	}
	return took, nil
}

// uploadThroughput compares the store with the plain SDK on one file, by turns.
func (b *bench) uploadThroughput(server *s3test.Server, plain *plainS3) error {
	store, err := objects.Open(b.ctx, objects.Config{
		Bucket: server.Bucket, Region: server.Region, Endpoint: server.Endpoint, PathStyle: true,
		AccessKeyID: server.AccessKeyID, SecretAccessKey: server.SecretAccessKey,
	})
	if err != nil {
		return err
	}
	f, sum, err := b.noiseFile(throughputSize)
	if err != nil {
		return err
	}
	defer f.Close()
	r := row{
		what: "upload of a 256 MiB file to S3, with its digests checked", unit: "ms", targets: []target{atMost("ratio", 1/0.9)},
		against: "a plain multipart upload of the same file with the SDK's own settings",
	}
	for range b.samples {
		b.tick()
		began := time.Now()
		if _, err := store.Put(b.ctx, "ours", f, uploader.Meta{SHA256: sum}); err != nil {
			return err
		}
		r.subject.add(time.Since(began))
		began = time.Now()
		if err := plain.put("plain", io.NewSectionReader(f, 0, throughputSize), throughputSize); err != nil {
			return err
		}
		r.base.add(time.Since(began))
	}
	b.add(r)
	return nil
}

// noiseFile makes a file of that size, and its SHA-256.
func (b *bench) noiseFile(size int) (*os.File, string, error) {
	f, err := os.Create(filepath.Join(b.dir, "noise"))
	if err != nil {
		return nil, "", err
	}
	noise, err := os.Open("/dev/urandom")
	if err != nil {
		return nil, "", errors.Join(err, f.Close())
	}
	defer noise.Close()
	sum := sha256.New()
	if _, err := io.CopyN(io.MultiWriter(f, sum), noise, int64(size)); err != nil {
		return nil, "", errors.Join(err, f.Close())
	}
	return f, hex.EncodeToString(sum.Sum(nil)), nil
}

// hugeUpload watches the daemon's memory while 3 GiB go to S3.
func (b *bench) hugeUpload(d *daemon) error {
	before, err := memoryOf(d.cmd.Process.Pid)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() {
		ended <- d.createAndRun(b.ctx, "huge", api.NewCommand{
			Shell: fmt.Sprintf("head -c %d /dev/zero >/outputs/huge.bin", hugeSize), Timeout: api.MaxTimeout.Seconds(),
		})
	}()
	r := row{what: "daemon: growth of its RSS while a 3 GiB output goes to S3", unit: "MB", targets: []target{atMost("max", 100)}}
	for published := false; !published; {
		select {
		case err := <-ended:
			if err != nil {
				return err
			}
			ended = nil
		case <-b.ctx.Done():
			return context.Cause(b.ctx)
		case <-time.After(100 * time.Millisecond):
		}
		now, err := memoryOf(d.cmd.Process.Pid)
		if err != nil {
			return err
		}
		r.subject = append(r.subject, (now.rss-before.rss)/mb)
		if ended == nil {
			cells, err := d.Cells(b.ctx, "huge")
			if err != nil {
				return err
			}
			published = len(cells) == 1 && cells[0].State == api.CellPublished
		}
	}
	b.add(r)
	return nil
}
