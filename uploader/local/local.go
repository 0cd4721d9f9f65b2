// Package local is the embedded store: objects are files of one directory,
// found by the digest of their contents, so that equal files are kept once.
//
//	objects/ab/abcd…      the contents, named by their SHA-256
//	refs/ab/abcd…/KEY     one empty file for each key that wants the contents
//	keys/12/KEY           what a key stands for (JSON); KEY is the key's SHA-256
//	tmp/                  what is being written; cleared when the store opens
//
// An object is there once its record under keys is: it is written last and
// removed first. Keys never become paths. One process at a time may use the
// directory; the daemon's own lock sees to that. Start reading at Store.
package local

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"mediasandbox/uploader"
)

// Store is the store in a directory. It implements uploader.Blobs.
type Store struct {
	dir     string
	baseURL string

	// mu keeps a Delete from removing contents that a Put just found.
	mu sync.Mutex
}

var _ uploader.Blobs = (*Store)(nil)

// Open opens the store, and makes it when it is missing. URLs are baseURL, a
// path of the API, with the escaped key behind it.
func Open(dir, baseURL string) (*Store, error) {
	s := &Store{dir: dir, baseURL: strings.TrimSuffix(baseURL, "/")}
	if err := os.RemoveAll(filepath.Join(dir, "tmp")); err != nil {
		return nil, fmt.Errorf("clear local store: %w", err)
	}
	for _, sub := range []string{"objects", "refs", "keys", "tmp"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			return nil, fmt.Errorf("make local store: %w", err)
		}
	}
	if err := syncDir(dir); err != nil {
		return nil, fmt.Errorf("make local store: %w", err)
	}
	return s, nil
}

// Put implements uploader.Blobs. Contents on the same file system are linked,
// not copied: f must not be written to any more.
func (s *Store) Put(ctx context.Context, key string, f *os.File, meta uploader.Meta) (uploader.Object, error) {
	fail := func(err error) (uploader.Object, error) {
		return uploader.Object{}, fmt.Errorf("store %s: %w", key, err)
	}
	if err := uploader.CheckKey(key); err != nil {
		return uploader.Object{}, err
	}
	size, err := verify(ctx, f, meta.SHA256)
	if err != nil {
		return fail(err)
	}
	obj := uploader.Object{Key: key, Size: size, Meta: meta, Modified: time.Now().UTC()}
	tmp, err := s.bring(ctx, f)
	if err != nil {
		return fail(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old, err := s.read(key)
	if err != nil && !errors.Is(err, uploader.ErrNotFound) {
		os.Remove(tmp)
		return fail(err)
	}
	if err := s.place(tmp, meta.SHA256, key); err != nil {
		return fail(err)
	}
	if err := s.record(obj); err != nil {
		return fail(err)
	}
	if old.SHA256 != "" && old.SHA256 != obj.SHA256 {
		if err := s.release(old.SHA256, key); err != nil {
			return fail(err)
		}
	}
	return obj, nil
}

// verify reads f and returns its size once the digest is found to match.
func verify(ctx context.Context, f *os.File, want string) (int64, error) {
	sum := sha256.New()
	n, err := io.Copy(sum, reader{ctx, io.NewSectionReader(f, 0, 1<<62)})
	if err != nil {
		return 0, err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != want {
		return 0, fmt.Errorf("contents have the digest %s, not %s: %w", got, want, uploader.ErrChecksum)
	}
	return n, nil
}

// reader ends when its context does.
type reader struct {
	ctx context.Context
	io.Reader
}

func (r reader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}

// read returns the record of a key.
func (s *Store) read(key string) (uploader.Object, error) {
	return s.readRecord(s.keyPath(keyHash(key)))
}

func (s *Store) readRecord(name string) (uploader.Object, error) {
	var obj uploader.Object
	data, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return obj, uploader.ErrNotFound
	}
	if err != nil {
		return obj, err
	}
	if err := json.Unmarshal(data, &obj); err != nil {
		return obj, fmt.Errorf("read record %s: %w", filepath.Base(name), err)
	}
	if !isDigest(obj.SHA256) {
		return obj, fmt.Errorf("read record %s: digest %q is none", filepath.Base(name), obj.SHA256)
	}
	return obj, nil
}

// Open implements uploader.Blobs. The reader is also an io.Seeker and an
// io.ReaderAt within the asked range.
func (s *Store) Open(_ context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	obj, err := s.Stat(context.Background(), key)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(s.objectPath(obj.SHA256))
	if errors.Is(err, fs.ErrNotExist) {
		err = uploader.ErrNotFound // deleted since
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", key, err)
	}
	offset = min(max(offset, 0), obj.Size)
	rest := obj.Size - offset
	if length >= 0 {
		rest = min(rest, length)
	}
	return section{io.NewSectionReader(f, offset, rest), f}, nil
}

type section struct {
	*io.SectionReader
	io.Closer
}

// Stat implements uploader.Blobs.
func (s *Store) Stat(_ context.Context, key string) (uploader.Object, error) {
	if err := uploader.CheckKey(key); err != nil {
		return uploader.Object{}, err
	}
	obj, err := s.read(key)
	if err != nil {
		return uploader.Object{}, fmt.Errorf("stat %s: %w", key, err)
	}
	return obj, nil
}

// Delete implements uploader.Blobs.
func (s *Store) Delete(_ context.Context, key string) error {
	if err := uploader.CheckKey(key); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	obj, err := s.read(key)
	if errors.Is(err, uploader.ErrNotFound) {
		return nil
	}
	if err == nil {
		err = s.forget(key)
	}
	if err == nil {
		err = s.release(obj.SHA256, key)
	}
	if err != nil {
		return fmt.Errorf("delete %s: %w", key, err)
	}
	return nil
}

// URL implements uploader.Blobs. The URL does not expire.
func (s *Store) URL(_ context.Context, key string, _ time.Duration) (string, error) {
	if err := uploader.CheckKey(key); err != nil {
		return "", err
	}
	parts := strings.Split(key, "/")
	for i, p := range parts {
		parts[i] = url.PathEscape(p)
	}
	return s.baseURL + "/" + strings.Join(parts, "/"), nil
}

// List implements uploader.Blobs. It reads every record of the store.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[uploader.Object, error] {
	return func(yield func(uploader.Object, error) bool) {
		objects, err := s.all(ctx, prefix)
		if err != nil {
			yield(uploader.Object{}, fmt.Errorf("list objects: %w", err))
			return
		}
		for _, obj := range objects {
			if !yield(obj, nil) {
				return
			}
		}
	}
}

func (s *Store) all(ctx context.Context, prefix string) ([]uploader.Object, error) {
	var objects []uploader.Object
	err := filepath.WalkDir(filepath.Join(s.dir, "keys"), func(name string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err := errors.Join(err, ctx.Err()); err != nil || d.IsDir() {
			return err
		}
		obj, err := s.readRecord(name)
		if errors.Is(err, uploader.ErrNotFound) {
			return nil // deleted since
		}
		if err == nil && strings.HasPrefix(obj.Key, prefix) {
			objects = append(objects, obj)
		}
		return err
	})
	slices.SortFunc(objects, func(a, b uploader.Object) int { return strings.Compare(a.Key, b.Key) })
	return objects, err
}
