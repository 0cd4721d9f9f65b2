// Package blobstest is the conformance suite of uploader.Blobs. Run is called
// by the tests of every store.
package blobstest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"mediasandbox/uploader"
)

// Run runs the suite. open returns the same store every time it is called, as
// a new process would find it; fetch gets what a URL of the store leads to.
func Run(t *testing.T, open func(t *testing.T) uploader.Blobs, fetch func(t *testing.T, url string) []byte) {
	s := suite{open: open, fetch: fetch}
	t.Run("put, stat, open", s.roundTrip)
	t.Run("ranges", s.ranges)
	t.Run("metadata of any bytes", s.metadata)
	t.Run("replace and put again", s.replace)
	t.Run("expiry", s.expires)
	t.Run("delete", s.remove)
	t.Run("wrong digest", s.wrongDigest)
	t.Run("bad keys", s.badKeys)
	t.Run("list", s.list)
	t.Run("urls", s.urls)
	t.Run("canceled", s.canceled)
	t.Run("at the same time", s.concurrent)
}

type suite struct {
	open  func(t *testing.T) uploader.Blobs
	fetch func(t *testing.T, url string) []byte
}

// Contents makes size bytes that look random and are the same for a seed.
func Contents(seed uint64, size int) []byte {
	data := make([]byte, size)
	src := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	src.Read(data) // never fails
	return data
}

// File writes data to a new file and returns it with its digest.
func File(t *testing.T, data []byte) (*os.File, uploader.Meta) {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "snapshot"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if _, err := f.Write(data); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(data)
	return f, uploader.Meta{ContentType: "image/png", FileName: "a.png", SHA256: hex.EncodeToString(sum[:])}
}

func put(t *testing.T, b uploader.Blobs, key string, data []byte) uploader.Object {
	t.Helper()
	f, meta := File(t, data)
	obj, err := b.Put(t.Context(), key, f, meta)
	if err != nil {
		t.Fatal(err)
	}
	return obj
}

func get(t *testing.T, b uploader.Blobs, key string, offset, length int64) []byte {
	t.Helper()
	r, err := b.Open(t.Context(), key, offset, length)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil {
		t.Fatal(err)
	}
	return data
}

func (s suite) roundTrip(t *testing.T) {
	b := s.open(t)
	for _, size := range []int{0, 1, 1000, 3 << 20} {
		data := Contents(uint64(size), size)
		key := uploader.NewKey("chat", "out/frame 1.png")
		before := time.Now().Add(-time.Minute)
		obj := put(t, b, key, data)
		if obj.Key != key || obj.Size != int64(size) || obj.ContentType != "image/png" {
			t.Errorf("put %d bytes gave %+v", size, obj)
		}
		b = s.open(t)
		if got := get(t, b, key, 0, -1); !bytes.Equal(got, data) {
			t.Errorf("%d bytes came back as %d others", size, len(got))
		}
		got, err := b.Stat(t.Context(), key)
		if err != nil || got.Size != int64(size) || got.Meta != obj.Meta || got.Key != key || got.Modified.Before(before) {
			t.Errorf("stat gave %+v, %v after %+v", got, err, obj)
		}
	}
}

func (s suite) ranges(t *testing.T) {
	b := s.open(t)
	data := Contents(7, 10_000)
	key := uploader.NewKey("chat", "ranges")
	put(t, b, key, data)
	for _, r := range []struct{ offset, length int64 }{
		{0, 1}, {0, 10_000}, {0, 20_000}, {5000, -1}, {5000, 100}, {9999, 1}, {9999, 5}, {10_000, -1}, {10_000, 1}, {12_345, 7}, {3, 0},
	} {
		from := min(r.offset, 10_000)
		to := int64(10_000)
		if r.length >= 0 {
			to = min(to, from+r.length)
		}
		if got := get(t, b, key, r.offset, r.length); !bytes.Equal(got, data[from:to]) {
			t.Errorf("range %+v gave %d bytes, want %d", r, len(got), to-from)
		}
	}
	if _, err := b.Open(t.Context(), uploader.NewKey("chat", "nothing"), 0, -1); !errors.Is(err, uploader.ErrNotFound) {
		t.Errorf("opening nothing: %v", err)
	}
}

func (s suite) metadata(t *testing.T) {
	b := s.open(t)
	for i, name := range []uploader.Path{"plain.txt", "🎬 finále.mp4", "two\nlines; filename=\"x\".png", "caf\xe9", "100%", "", uploader.Path(strings.Repeat("ü", 120))} {
		f, meta := File(t, []byte("x"))
		meta.FileName, meta.ContentType = name, "text/plain; charset=utf-8"
		key := uploader.NewKey("chat", uploader.Path(fmt.Sprint(i)))
		if _, err := b.Put(t.Context(), key, f, meta); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got, err := b.Stat(t.Context(), key); err != nil || got.Meta != meta {
			t.Errorf("put with %+v, stat gave %+v, %v", meta, got.Meta, err)
		}
	}
}

func (s suite) replace(t *testing.T) {
	b := s.open(t)
	key, other := uploader.NewKey("chat", "a"), uploader.NewKey("chat", "b")
	put(t, b, key, []byte("one"))
	put(t, b, other, []byte("one"))
	put(t, b, key, []byte("one"))
	put(t, b, key, []byte("two"))
	if got := get(t, b, key, 0, -1); string(got) != "two" {
		t.Errorf("replaced object holds %q", got)
	}
	if got := get(t, b, other, 0, -1); string(got) != "one" {
		t.Errorf("the other object holds %q", got)
	}
}

// expires keeps the expiry with the object, to the second.
func (s suite) expires(t *testing.T) {
	b := s.open(t)
	for _, size := range []int{10, 17 << 20} {
		key := uploader.NewKey("chat", "expires")
		f, meta := File(t, Contents(1, size))
		at := time.Date(2031, 2, 3, 4, 5, 6, 0, time.UTC)
		meta.Expires = &at
		if _, err := b.Put(t.Context(), key, f, meta); err != nil {
			t.Fatal(err)
		}
		obj, err := b.Stat(t.Context(), key)
		if err != nil || obj.Expires == nil || !obj.Expires.Equal(at) {
			t.Errorf("stat of an object that expires: %v, %v", obj.Expires, err)
		}
	}
}

func (s suite) remove(t *testing.T) {
	b := s.open(t)
	key, other := uploader.NewKey("chat", "a"), uploader.NewKey("chat", "b")
	put(t, b, key, []byte("shared"))
	put(t, b, other, []byte("shared"))
	for range 2 {
		if err := b.Delete(t.Context(), key); err != nil {
			t.Error(err)
		}
	}
	if _, err := b.Stat(t.Context(), key); !errors.Is(err, uploader.ErrNotFound) || uploader.Retryable(err) {
		t.Errorf("stat of a deleted object: %v", err)
	}
	if got := get(t, b, other, 0, -1); string(got) != "shared" {
		t.Errorf("the other object holds %q", got)
	}
}

func (s suite) wrongDigest(t *testing.T) {
	b := s.open(t)
	for _, size := range []int{10, 17 << 20} {
		key := uploader.NewKey("chat", "wrong")
		f, meta := File(t, Contents(1, size))
		meta.SHA256 = strings.Repeat("0", 64)
		_, err := b.Put(t.Context(), key, f, meta)
		if !errors.Is(err, uploader.ErrChecksum) || uploader.Retryable(err) {
			t.Errorf("put with a wrong digest: %v", err)
		}
		if _, err := b.Stat(t.Context(), key); !errors.Is(err, uploader.ErrNotFound) {
			t.Errorf("stat after it: %v", err)
		}
	}
}

func (s suite) badKeys(t *testing.T) {
	b := s.open(t)
	for _, key := range []string{"", "/a", "a/", "a//b", "../a", "a/../../b", ".", "..", "a/./b", "a\x00", "a\nb", "\xff", strings.Repeat("k", 801)} {
		f, meta := File(t, []byte("x"))
		_, putErr := b.Put(t.Context(), key, f, meta)
		_, openErr := b.Open(t.Context(), key, 0, -1)
		_, statErr := b.Stat(t.Context(), key)
		_, urlErr := b.URL(t.Context(), key, time.Hour)
		for _, err := range []error{putErr, openErr, statErr, urlErr, b.Delete(t.Context(), key)} {
			if !errors.Is(err, uploader.ErrKey) {
				t.Errorf("key %q: %v", key, err)
			}
		}
	}
}

func (s suite) list(t *testing.T) {
	b := s.open(t)
	var want []string
	for i := range 12 {
		key := fmt.Sprintf("list/%02d/name ü+&=?#%%.png", i)
		put(t, b, key, Contents(uint64(i), i))
		want = append(want, key)
	}
	put(t, b, "listed-elsewhere", nil)
	var got []string
	for obj, err := range b.List(t.Context(), "list/") {
		if err != nil {
			t.Fatal(err)
		}
		if obj.Size != int64(len(got)) {
			t.Errorf("%s has %d bytes", obj.Key, obj.Size)
		}
		got = append(got, obj.Key)
	}
	if !slices.Equal(got, want) {
		t.Errorf("listed %q, want %q", got, want)
	}
	for range b.List(t.Context(), "list/") {
		break // ends early without harm
	}
	for obj, err := range b.List(t.Context(), "nothing/") {
		t.Errorf("listed %+v, %v", obj, err)
	}
}

func (s suite) urls(t *testing.T) {
	b := s.open(t)
	for _, name := range []uploader.Path{"a.png", "ü b+c%41 ?#&.png"} {
		data := Contents(9, 1234)
		key := uploader.NewKey("chat", name)
		put(t, b, key, data)
		url, err := b.URL(t.Context(), key, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.fetch(t, url); !bytes.Equal(got, data) {
			t.Errorf("%s gave %d bytes", url, len(got))
		}
	}
}

func (s suite) canceled(t *testing.T) {
	b := s.open(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	key := uploader.NewKey("chat", "canceled")
	f, meta := File(t, Contents(3, 1<<20))
	if _, err := b.Put(ctx, key, f, meta); !errors.Is(err, context.Canceled) || !uploader.Retryable(err) {
		t.Errorf("put after cancel: %v", err)
	}
	if _, err := b.Stat(t.Context(), key); !errors.Is(err, uploader.ErrNotFound) {
		t.Errorf("stat after it: %v", err)
	}
}

// concurrent puts, replaces and deletes objects of few contents.
func (s suite) concurrent(t *testing.T) {
	b := s.open(t)
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for j := range 6 {
				key := fmt.Sprintf("concurrent/%d", (i+j)%4)
				f, meta := File(t, Contents(uint64(j%2), 5000))
				if _, err := b.Put(t.Context(), key, f, meta); err != nil {
					t.Error(err)
				}
				if j%3 == 2 {
					if err := b.Delete(t.Context(), key); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	group.Wait()
	for i := range 4 {
		put(t, b, fmt.Sprintf("concurrent/%d", i), Contents(uint64(i%2), 5000))
	}
	for i := range 4 {
		if got := get(t, b, fmt.Sprintf("concurrent/%d", i), 0, -1); !bytes.Equal(got, Contents(uint64(i%2), 5000)) {
			t.Errorf("object %d has other contents", i)
		}
	}
}
