package daemon

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"mediasandbox/uploader"
	"mediasandbox/uploader/local"
	"mediasandbox/uploader/s3"
)

// newBlobs opens the store that the configuration names. direct tells whether
// its URLs are for everybody, or only paths of the API.
func (d *Daemon) newBlobs(ctx context.Context) (blobs uploader.Blobs, direct bool, err error) {
	if d.cfg.Store.Kind == "s3" {
		blobs, err = d.newS3(ctx)
		return blobs, true, err
	}
	blobs, err = local.Open(filepath.Join(d.cfg.Paths.StateDir, "store"), "")
	if err != nil {
		return nil, false, fmt.Errorf("open the local store: %w", err)
	}
	return blobs, false, nil
}

// newS3 opens the bucket. What an earlier daemon left of unfinished uploads is
// removed; that the bucket can't be reached now stops nothing, since uploads
// are retried for ever.
func (d *Daemon) newS3(ctx context.Context) (*s3.Store, error) {
	c := d.cfg.Store.S3
	cfg := s3.Config{
		Bucket: c.Bucket, Region: c.Region, Endpoint: c.Endpoint, PathStyle: c.PathStyle, Prefix: c.Prefix,
		PublicBaseURL: c.PublicBaseURL, PresignExpiry: time.Duration(c.PresignExpiry), SSE: c.SSE, StorageClass: c.StorageClass,
	}
	for file, field := range map[string]*string{c.AccessKeyFile: &cfg.AccessKeyID, c.SecretKeyFile: &cfg.SecretAccessKey} {
		if file == "" {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read the store's credentials: %w", err)
		}
		*field = strings.TrimSpace(string(text))
	}
	st, err := s3.Open(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("open the store: %w", err)
	}
	go d.clearUploads(ctx, st, time.Now())
	return st, nil
}

const (
	// clearAgain is how soon the clearing of unfinished uploads is tried again,
	// clearEvery how often what is older than oldUpload is looked for: no attempt
	// at an upload takes that long.
	clearAgain = 20 * time.Second
	clearEvery = time.Hour
	oldUpload  = 48 * time.Hour
)

// clearUploads removes the parts of uploads that will never end: at once those
// of the daemons before, and from time to time those of which this one was never
// told, since the store's answer got lost.
func (d *Daemon) clearUploads(ctx context.Context, st *s3.Store, before time.Time) {
	for {
		_, err := st.AbortUploads(ctx, before)
		wait := clearEvery
		if err != nil && ctx.Err() == nil {
			d.log.Warn("clear unfinished uploads of the store", "error", err)
			wait = clearAgain
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		if err == nil {
			before = time.Now().Add(-oldUpload)
		}
	}
}
