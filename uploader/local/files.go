package local

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"mediasandbox/uploader"
)

func keyHash(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

func isDigest(s string) bool {
	raw, err := hex.DecodeString(s)
	return err == nil && len(raw) == sha256.Size && strings.ToLower(s) == s
}

func (s *Store) objectPath(digest string) string {
	return filepath.Join(s.dir, "objects", digest[:2], digest)
}

func (s *Store) refPath(digest, key string) string {
	return filepath.Join(s.dir, "refs", digest[:2], digest, key)
}

func (s *Store) keyPath(key string) string {
	return filepath.Join(s.dir, "keys", key[:2], key)
}

func (s *Store) tmpPath() string {
	return filepath.Join(s.dir, "tmp", rand.Text())
}

// bring links f into the store, or copies it when it lies elsewhere, and
// returns the name it has for now. The contents are durable.
func (s *Store) bring(ctx context.Context, f *os.File) (string, error) {
	tmp := s.tmpPath()
	err := unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", f.Fd()), unix.AT_FDCWD, tmp, unix.AT_SYMLINK_FOLLOW)
	if err == nil {
		return tmp, f.Sync()
	}
	out, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	_, err = io.Copy(out, reader{ctx, io.NewSectionReader(f, 0, 1<<62)})
	if err = errors.Join(err, out.Sync(), out.Close()); err != nil {
		os.Remove(tmp)
		return "", err
	}
	return tmp, nil
}

// place gives the contents at tmp their name, and notes that the key wants
// them. The note comes first, so that a crash leaves no contents unaccounted.
func (s *Store) place(tmp, digest, key string) error {
	defer os.Remove(tmp) // gone already when it was renamed
	ref := s.refPath(digest, keyHash(key))
	if err := makeDirs(s.dir, filepath.Dir(ref)); err != nil {
		return err
	}
	f, err := os.OpenFile(ref, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Close(), syncDir(filepath.Dir(ref))); err != nil {
		return err
	}
	name := s.objectPath(digest)
	if err := makeDirs(s.dir, filepath.Dir(name)); err != nil {
		return err
	}
	if _, err := os.Lstat(name); err == nil {
		return nil
	}
	return errors.Join(os.Rename(tmp, name), syncDir(filepath.Dir(name)))
}

// record writes what a key stands for.
func (s *Store) record(obj uploader.Object) error {
	data, err := json.Marshal(obj)
	if err != nil {
		return err
	}
	name := s.keyPath(keyHash(obj.Key))
	if err := makeDirs(s.dir, filepath.Dir(name)); err != nil {
		return err
	}
	tmp := s.tmpPath()
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(tmp, name)
	}
	if err != nil {
		os.Remove(tmp)
		return err
	}
	return syncDir(filepath.Dir(name))
}

// forget removes what a key stands for; from then on the object is gone.
func (s *Store) forget(key string) error {
	name := s.keyPath(keyHash(key))
	return errors.Join(os.Remove(name), syncDir(filepath.Dir(name)))
}

// release removes the note that a key wants the contents, and the contents
// with the last note.
func (s *Store) release(digest, key string) error {
	ref := s.refPath(digest, keyHash(key))
	if err := os.Remove(ref); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	err := os.Remove(filepath.Dir(ref))
	if errors.Is(err, unix.ENOTEMPTY) {
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Remove(s.objectPath(digest)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Repair removes what crashes left behind: notes of keys that stand for
// something else now, and contents that no key wants. It reads the whole store
// and returns how many contents it removed.
func (s *Store) Repair(ctx context.Context) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	removed := 0
	err := filepath.WalkDir(filepath.Join(s.dir, "objects"), func(name string, d fs.DirEntry, err error) error {
		if err := errors.Join(err, ctx.Err()); err != nil || d.IsDir() {
			return err
		}
		err = s.repairObject(d.Name())
		if _, gone := os.Lstat(name); errors.Is(gone, fs.ErrNotExist) {
			removed++
		}
		return err
	})
	if err != nil {
		return removed, fmt.Errorf("repair local store: %w", err)
	}
	return removed, nil
}

func (s *Store) repairObject(digest string) error {
	if !isDigest(digest) {
		return nil
	}
	refs, err := os.ReadDir(filepath.Dir(s.refPath(digest, "x")))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	wanted := false
	for _, ref := range refs {
		obj, err := s.readRecord(s.keyPath(ref.Name()))
		switch {
		case err != nil && !errors.Is(err, uploader.ErrNotFound):
			return err
		case err == nil && obj.SHA256 == digest:
			wanted = true
		default:
			if err := os.Remove(s.refPath(digest, ref.Name())); err != nil {
				return err
			}
		}
	}
	if wanted {
		return nil
	}
	if err := os.Remove(filepath.Dir(s.refPath(digest, "x"))); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Remove(s.objectPath(digest))
}

// makeDirs makes dir, which is below root, and makes what it made durable.
func makeDirs(root, dir string) error {
	err := os.Mkdir(dir, 0o700)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if errors.Is(err, fs.ErrNotExist) && dir != root {
		if err := makeDirs(root, filepath.Dir(dir)); err != nil {
			return err
		}
		err = os.Mkdir(dir, 0o700)
	}
	if err != nil {
		return err
	}
	return syncDir(filepath.Dir(dir))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
