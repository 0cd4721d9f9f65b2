package local

import (
	"context"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"mediasandbox/uploader"
	"mediasandbox/uploader/blobstest"
)

func open(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(dir, "/v1/files/")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestConformance(t *testing.T) {
	dir := t.TempDir()
	blobstest.Run(t, func(t *testing.T) uploader.Blobs { return open(t, dir) }, func(t *testing.T, link string) []byte {
		u, err := url.Parse(link)
		if err != nil {
			t.Fatal(err)
		}
		key, ok := strings.CutPrefix(u.Path, "/v1/files/")
		if !ok {
			t.Fatalf("url %s is not below the base", link)
		}
		r, err := open(t, dir).Open(t.Context(), key, 0, -1)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		return data
	})
	checkNothingLeft(t, dir)
}

// checkNothingLeft deletes all objects and checks that no file stays.
func checkNothingLeft(t *testing.T, dir string) {
	t.Helper()
	s := open(t, dir)
	for obj, err := range s.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Delete(t.Context(), obj.Key); err != nil {
			t.Fatal(err)
		}
	}
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			t.Errorf("left in the store: %s", name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestLinked: a file on the same file system is not copied.
func TestLinked(t *testing.T) {
	s := open(t, t.TempDir())
	f, meta := blobstest.File(t, []byte("linked"))
	if _, err := s.Put(t.Context(), "a", f, meta); err != nil {
		t.Fatal(err)
	}
	stored, err := os.Stat(s.objectPath(meta.SHA256))
	if err != nil {
		t.Fatal(err)
	}
	own, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if !os.SameFile(stored, own) {
		t.Error("the contents were copied")
	}
	os.Remove(f.Name())
	if n := mustLinks(t, s.objectPath(meta.SHA256)); n != 1 {
		t.Errorf("the contents have %d names", n)
	}
}

func mustLinks(t *testing.T, name string) uint64 {
	t.Helper()
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	return uint64(info.Sys().(*syscall.Stat_t).Nlink)
}

// TestOtherFileSystem: contents that cannot be linked are copied.
func TestOtherFileSystem(t *testing.T) {
	s := open(t, t.TempDir())
	f, err := os.CreateTemp("/dev/shm", "uploader-test")
	if err != nil {
		t.Fatal(err)
	}
	defer os.Remove(f.Name())
	defer f.Close()
	data := blobstest.Contents(1, 3<<20)
	if _, err := f.Write(data); err != nil {
		t.Fatal(err)
	}
	_, meta := blobstest.File(t, data)
	if _, err := s.Put(t.Context(), "a", f, meta); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(s.objectPath(meta.SHA256))
	if err != nil || string(got) != string(data) {
		t.Errorf("the copy has %d bytes, %v", len(got), err)
	}
}

// TestCrashes leaves the store as a crash would at each step of Put and
// Delete; it then works, and Repair removes what nobody wants.
func TestCrashes(t *testing.T) {
	f, meta := blobstest.File(t, []byte("contents"))
	steps := map[string]func(s *Store) error{
		"brought": func(s *Store) error { _, err := s.bring(context.Background(), f); return err },
		"placed": func(s *Store) error {
			tmp, err := s.bring(context.Background(), f)
			if err != nil {
				return err
			}
			return s.place(tmp, meta.SHA256, "a")
		},
		"forgotten": func(s *Store) error {
			if _, err := s.Put(context.Background(), "a", f, meta); err != nil {
				return err
			}
			return s.forget("a")
		},
	}
	for name, crash := range steps {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := crash(open(t, dir)); err != nil {
				t.Fatal(err)
			}
			s := open(t, dir)
			if _, err := s.Stat(t.Context(), "a"); err == nil {
				t.Error("half an object is there")
			}
			removed, err := s.Repair(t.Context())
			if want := map[string]int{"placed": 1, "forgotten": 1}[name]; removed != want || err != nil {
				t.Errorf("repair removed %d contents, %v; want %d", removed, err, want)
			}
			if _, err := s.Put(t.Context(), "b", f, meta); err != nil {
				t.Fatal(err)
			}
			if removed, err := s.Repair(t.Context()); removed != 0 || err != nil {
				t.Errorf("repair removed %d contents in use, %v", removed, err)
			}
			checkNothingLeft(t, dir)
		})
	}
}
