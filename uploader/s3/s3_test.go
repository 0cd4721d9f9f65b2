package s3

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"mediasandbox/uploader"
	"mediasandbox/uploader/blobstest"
	"mediasandbox/uploader/s3/s3test"
)

func configOf(srv *s3test.Server) Config {
	return Config{
		Bucket: srv.Bucket, Region: srv.Region, Endpoint: srv.Endpoint, PathStyle: true, Prefix: "host-1/",
		AccessKeyID: srv.AccessKeyID, SecretAccessKey: srv.SecretAccessKey,
	}
}

func openStore(t *testing.T, cfg Config) *Store {
	t.Helper()
	s, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func fetch(t *testing.T, link string) []byte {
	t.Helper()
	resp, err := http.Get(link)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("get %s: %s, %v: %.300s", link, resp.Status, err, data)
	}
	return data
}

func TestConformance(t *testing.T) {
	srv := s3test.Start(t)
	blobstest.Run(t, func(t *testing.T) uploader.Blobs { return openStore(t, configOf(srv)) }, fetch)
	checkNoUploads(t, srv)
}

// checkNoUploads checks that no parts are left in the bucket.
func checkNoUploads(t *testing.T, srv *s3test.Server) {
	t.Helper()
	if n := countUploads(t, srv); n != 0 {
		t.Errorf("%d multipart uploads are left open", n)
	}
}

func countUploads(t *testing.T, srv *s3test.Server) int {
	t.Helper()
	out, err := srv.Client().ListMultipartUploads(context.Background(), &s3.ListMultipartUploadsInput{Bucket: &srv.Bucket})
	if err != nil {
		t.Fatal(err)
	}
	return len(out.Uploads)
}

// TestMultipart: 40 MiB go up in parts, in bounded memory, and come back.
func TestMultipart(t *testing.T) {
	srv := s3test.Start(t)
	s := openStore(t, configOf(srv))
	data := blobstest.Contents(5, 40<<20+123)
	f, meta := blobstest.File(t, data)
	key := uploader.NewKey("chat", "film.mp4")

	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	obj, err := s.Put(t.Context(), key, f, meta)
	if err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > 100<<20 {
		t.Errorf("%d MiB were allocated for %d MiB", used>>20, len(data)>>20)
	}
	if obj.Size != int64(len(data)) {
		t.Errorf("put gave %+v", obj)
	}
	head, err := srv.Client().HeadObject(t.Context(), &s3.HeadObjectInput{
		Bucket: &srv.Bucket, Key: aws.String("host-1/" + key), ChecksumMode: "ENABLED",
	})
	if err != nil {
		t.Fatal(err)
	}
	if aws.ToString(head.ChecksumCRC32) == "" || !strings.HasPrefix(aws.ToString(head.ContentDisposition), "inline; filename*=UTF-8''a.png") {
		t.Errorf("the service keeps no checksum or name: %+v", head)
	}
	link, err := s.URL(t.Context(), key, 0)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(fetch(t, link), data) {
		t.Error("other bytes came back")
	}
	checkNoUploads(t, srv)
}

// TestCancelAborts: an upload whose context ends in the middle leaves nothing.
func TestCancelAborts(t *testing.T) {
	srv := s3test.Start(t)
	s := openStore(t, configOf(srv))
	f, meta := blobstest.File(t, blobstest.Contents(6, 64<<20))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := s.Put(ctx, "canceled", f, meta)
		done <- err
	}()
	deadline := time.After(20 * time.Second)
	for countUploads(t, srv) == 0 {
		select {
		case err := <-done:
			t.Fatalf("put ended before it could be canceled: %v", err)
		case <-deadline:
			t.Fatal("no multipart upload began")
		default:
		}
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) || !uploader.Retryable(err) {
		t.Errorf("put after cancel: %v", err)
	}
	checkNoUploads(t, srv)
}

// TestCancelWhileBeginning: an upload whose context ends before the service has
// answered with its id is aborted as well.
func TestCancelWhileBeginning(t *testing.T) {
	srv := s3test.Start(t)
	to, err := url.Parse(srv.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var begun atomic.Int32
	late := httptest.NewServer(&httputil.ReverseProxy{
		// The Host header stays, since it is signed.
		Rewrite: func(p *httputil.ProxyRequest) { p.Out.URL.Scheme, p.Out.URL.Host = to.Scheme, to.Host },
		ModifyResponse: func(r *http.Response) error {
			if r.Request.Method == http.MethodPost && r.Request.URL.Query().Has("uploads") {
				begun.Add(1)
				cancel()
				<-time.After(200 * time.Millisecond)
			}
			return nil
		},
	})
	defer late.Close()
	cfg := configOf(srv)
	cfg.Endpoint = late.URL
	f, meta := blobstest.File(t, blobstest.Contents(6, 20<<20))
	if _, err := openStore(t, cfg).Put(ctx, "canceled", f, meta); !errors.Is(err, context.Canceled) || !uploader.Retryable(err) {
		t.Errorf("put after cancel: %v", err)
	}
	if n := begun.Load(); n != 1 {
		t.Errorf("%d uploads began", n)
	}
	checkNoUploads(t, srv)
}

// TestAbortUploads: what a crash left is removed, what is younger is not.
func TestAbortUploads(t *testing.T) {
	srv := s3test.Start(t)
	s := openStore(t, configOf(srv))
	for _, key := range []string{"host-1/a", "host-1/b", "other/c"} {
		_, err := srv.Client().CreateMultipartUpload(t.Context(), &s3.CreateMultipartUploadInput{Bucket: &srv.Bucket, Key: &key})
		if err != nil {
			t.Fatal(err)
		}
	}
	if n, err := s.AbortUploads(t.Context(), time.Now().Add(-time.Hour)); n != 0 || err != nil {
		t.Errorf("aborted %d young uploads, %v", n, err)
	}
	if n, err := s.AbortUploads(t.Context(), time.Now().Add(time.Minute)); n != 2 || err != nil {
		t.Errorf("aborted %d uploads, %v", n, err)
	}
	if n := countUploads(t, srv); n != 1 {
		t.Errorf("%d uploads are left, want that of the other prefix", n)
	}
}

// TestDenied: wrong credentials give one clear line, without the secret.
func TestDenied(t *testing.T) {
	srv := s3test.Start(t)
	for name, spoil := range map[string]func(*Config){
		"secret": func(c *Config) { c.SecretAccessKey = "not-the-secret" },
		"key id": func(c *Config) { c.AccessKeyID = "nobody" },
	} {
		cfg := configOf(srv)
		spoil(&cfg)
		s := openStore(t, cfg)
		for _, size := range []int{10, 20 << 20} {
			f, meta := blobstest.File(t, blobstest.Contents(1, size))
			_, err := s.Put(t.Context(), "k", f, meta)
			if !errors.Is(err, uploader.ErrDenied) || uploader.Retryable(err) {
				t.Fatalf("wrong %s: %v", name, err)
			}
			line := err.Error()
			if strings.ContainsAny(line, "\n") || strings.Contains(line, cfg.SecretAccessKey) || !strings.Contains(line, "store denies access") || len(line) > 300 {
				t.Errorf("wrong %s: %q", name, line)
			}
		}
		if err := s.Check(t.Context()); !errors.Is(err, uploader.ErrDenied) {
			t.Errorf("check with wrong %s: %v", name, err)
		}
	}
	cfg := configOf(srv)
	cfg.Bucket = "missing"
	if err := openStore(t, cfg).Check(t.Context()); !errors.Is(err, uploader.ErrNoBucket) {
		t.Errorf("check of a missing bucket: %v", err)
	}
	if err := openStore(t, configOf(srv)).Check(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestServerDies: the server is killed in the middle of an upload and comes
// back later; the upload completes by being tried again.
func TestServerDies(t *testing.T) {
	srv := s3test.Start(t)
	spool, err := uploader.OpenSpool(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer spool.Close()
	data := blobstest.Contents(8, 48<<20)
	f, meta := blobstest.File(t, data)
	snap, err := spool.Snapshot(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	job := uploader.Job{ID: "1", Chat: "c", Key: uploader.NewKey("c", "film.mp4"), Snapshot: snap, ContentType: meta.ContentType}
	q := &queue{job: job}
	store := openStore(t, configOf(srv))
	u := uploader.NewUploader(uploader.UploaderConfig{
		Queue: q, Blobs: store, Spool: spool, MinBackoff: 100 * time.Millisecond, MaxBackoff: 500 * time.Millisecond,
	})
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- u.Run(ctx) }()
	poll(t, "a multipart upload", func() bool { return countUploads(t, srv) > 0 })
	srv.Kill()
	poll(t, "a failed attempt", func() bool { return u.Stats().Retrying == 1 })
	if err := srv.Resume(); err != nil {
		t.Fatal(err)
	}
	poll(t, "the end of the upload", func() bool { return u.Stats().Uploaded == 1 })
	cancel()
	if err := <-ran; err != nil {
		t.Error(err)
	}
	r, err := store.Open(t.Context(), job.Key, 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes came back, %v", len(got), err)
	}
	if q.done.Load() != 1 {
		t.Errorf("the job was done %d times", q.done.Load())
	}
	if n, err := store.AbortUploads(t.Context(), time.Now().Add(time.Minute)); err != nil {
		t.Errorf("aborted %d, %v", n, err)
	}
	checkNoUploads(t, srv)
}

func poll(t *testing.T, what string, cond func() bool) {
	t.Helper()
	deadline := time.After(60 * time.Second)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// queue is the record of one job.
type queue struct {
	job  uploader.Job
	done atomic.Int32
}

func (q *queue) Pending(context.Context) ([]uploader.Job, error) { return []uploader.Job{q.job}, nil }

func (q *queue) Done(context.Context, uploader.Job, uploader.Object) error {
	q.done.Add(1)
	return nil
}

func (q *queue) Failed(_ context.Context, _ uploader.Job, cause error) error { return cause }

func TestURLs(t *testing.T) {
	cfg := Config{Bucket: "b", Endpoint: "http://127.0.0.1:1", PathStyle: true, Prefix: "p", AccessKeyID: "a", SecretAccessKey: "s"}
	cfg.PublicBaseURL = "https://cdn.example/x/"
	link, err := openStore(t, cfg).URL(t.Context(), "c/ü 1?.png", time.Hour)
	if want := "https://cdn.example/x/p/c/%C3%BC%201%3F.png"; link != want || err != nil {
		t.Errorf("public URL is %s, %v", link, err)
	}
	cfg.PublicBaseURL = ""
	link, err = openStore(t, cfg).URL(t.Context(), "c/1", 30*24*time.Hour)
	if !strings.Contains(link, "X-Amz-Expires=604800&") || err != nil {
		t.Errorf("a URL for 30 days is %s, %v", link, err)
	}
}

func TestValidate(t *testing.T) {
	good := Config{Bucket: "b"}
	for want, spoil := range map[string]func(*Config){
		"bucket":          func(c *Config) { c.Bucket = "" },
		"access key":      func(c *Config) { c.AccessKeyID = "a" },
		"presign expiry":  func(c *Config) { c.PresignExpiry = 8 * 24 * time.Hour },
		"encryption":      func(c *Config) { c.SSE = "rot13" },
		"KMS key":         func(c *Config) { c.KMSKeyID = "k" },
		"endpoint":        func(c *Config) { c.Endpoint = "localhost:9000" },
		"public base URL": func(c *Config) { c.PublicBaseURL = "ftp://x" },
		"prefix":          func(c *Config) { c.Prefix = strings.Repeat("p", 201) },
	} {
		c := good
		spoil(&c)
		if _, err := Open(t.Context(), c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
