package uploader

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// ErrChanged says that a file changed while it was copied.
var ErrChanged = errors.New("file changed while it was copied")

const (
	snapshotSuffix = ".snap"
	stagedSuffix   = ".tmp"
	copyChunk      = 1 << 20
)

// Snapshot is a complete copy of a file in the spool.
type Snapshot struct {
	// Name is the copy's name within the spool.
	Name string `json:"name"`
	// SHA256 is the digest in lower-case hex, of the bytes as they were written.
	SHA256 string `json:"sha256"`
	// Size is in bytes.
	Size int64 `json:"size"`
}

// Spool is a directory of snapshots that wait for their upload. A snapshot
// appears whole and durable, or not at all. For the local store it should lie
// on the store's file system, so that a file moves there without a second copy.
type Spool struct {
	path string
	dir  *os.File
	// clone of zeros to find holes with
	zeros []byte
}

// OpenSpool opens the directory, and makes it when it is missing.
func OpenSpool(dir string) (*Spool, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make spool: %w", err)
	}
	d, err := openDirectory(dir)
	if err != nil {
		return nil, fmt.Errorf("open spool: %w", err)
	}
	return &Spool{path: dir, dir: d, zeros: make([]byte, copyChunk)}, nil
}

// Close lets go of the directory.
func (s *Spool) Close() error { return s.dir.Close() }

// Clean removes what no recorded job wants: the names not in wanted, and
// copies that were never completed. It is for the start of a daemon, before
// any watcher runs. It returns how many files it removed.
func (s *Spool) Clean(wanted map[string]bool) (int, error) {
	entries, err := os.ReadDir(s.path)
	if err != nil {
		return 0, fmt.Errorf("clean spool: %w", err)
	}
	removed := 0
	for _, e := range entries {
		name := e.Name()
		ours := strings.HasSuffix(name, snapshotSuffix) || strings.HasSuffix(name, stagedSuffix)
		if !ours || wanted[name] {
			continue
		}
		if err := os.Remove(filepath.Join(s.path, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return removed, fmt.Errorf("clean spool: %w", err)
		}
		removed++
	}
	return removed, nil
}

// Snapshot copies the whole of f, whatever its offset, and returns once the
// copy is durable. It returns ErrChanged when f changed meanwhile.
func (s *Spool) Snapshot(ctx context.Context, f *os.File) (Snapshot, error) {
	st, err := fstat(int(f.Fd()))
	if err != nil {
		return Snapshot{}, fmt.Errorf("stat %s: %w", Path(f.Name()), err)
	}
	c, err := s.stage(ctx, f, st.id)
	if err != nil {
		return Snapshot{}, err
	}
	if err := s.commit([]*staged{c}); err != nil {
		return Snapshot{}, err
	}
	return c.snapshot, nil
}

// Open opens a snapshot for reading.
func (s *Spool) Open(snap Snapshot) (*os.File, error) {
	p, err := s.pathOf(snap)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(p)
	if err != nil {
		return nil, fmt.Errorf("open snapshot: %w", err)
	}
	return f, nil
}

// Remove removes a snapshot. It is no error when it is gone.
func (s *Spool) Remove(snap Snapshot) error {
	p, err := s.pathOf(snap)
	if err != nil {
		return err
	}
	if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove snapshot: %w", err)
	}
	return nil
}

// Usage returns how many snapshots wait and their bytes.
func (s *Spool) Usage() (files int, size int64, err error) {
	entries, err := os.ReadDir(s.path)
	if err != nil {
		return 0, 0, fmt.Errorf("read spool: %w", err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) || !strings.HasSuffix(e.Name(), snapshotSuffix) {
			continue
		}
		if err != nil {
			return 0, 0, fmt.Errorf("read spool: %w", err)
		}
		files++
		size += info.Size()
	}
	return files, size, nil
}

func (s *Spool) pathOf(snap Snapshot) (string, error) {
	if !strings.HasSuffix(snap.Name, snapshotSuffix) || filepath.Base(snap.Name) != snap.Name {
		return "", fmt.Errorf("snapshot name %q is none of the spool's", snap.Name)
	}
	return filepath.Join(s.path, snap.Name), nil
}

// staged is a complete copy that is not yet durable.
type staged struct {
	file     *os.File
	snapshot Snapshot
}

// stage copies f, which was in the state want when it was opened.
func (s *Spool) stage(ctx context.Context, f *os.File, want Identity) (*staged, error) {
	var id [16]byte
	rand.Read(id[:]) // never fails
	name := hex.EncodeToString(id[:])
	out, err := os.OpenFile(filepath.Join(s.path, name+stagedSuffix), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("make snapshot: %w", err)
	}
	sum := sha256.New()
	size, err := s.copy(ctx, out, f, want.Size, sum)
	if err == nil {
		var after fileStat
		after, err = fstat(int(f.Fd()))
		if err == nil && (after.id != want || size != want.Size) {
			err = ErrChanged
		}
	}
	c := &staged{file: out, snapshot: Snapshot{Name: name + snapshotSuffix, Size: size}}
	if err != nil {
		s.discard(c)
		return nil, fmt.Errorf("copy %s: %w", Path(f.Name()), err)
	}
	c.snapshot.SHA256 = hex.EncodeToString(sum.Sum(nil))
	return c, nil
}

// copy copies at most one byte more than size, so that a file that grows
// without end is noticed and not followed. Chunks of zeros become holes: a
// guest's sparse file costs the host no more than it cost the guest.
func (s *Spool) copy(ctx context.Context, out, in *os.File, size int64, sum hash.Hash) (int64, error) {
	buf := make([]byte, min(copyChunk, size+1))
	from := io.NewSectionReader(in, 0, size+1)
	var done int64
	for {
		if err := ctx.Err(); err != nil {
			return done, err
		}
		n, err := io.ReadFull(from, buf)
		chunk := buf[:n]
		sum.Write(chunk)
		if !bytes.Equal(chunk, s.zeros[:n]) {
			if _, err := out.WriteAt(chunk, done); err != nil {
				return done, err
			}
		}
		done += int64(n)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return done, out.Truncate(done)
		}
		if err != nil {
			return done, err
		}
	}
}

// commit makes copies durable and gives them their names: all, or none.
func (s *Spool) commit(copies []*staged) error {
	err := syncAll(copies)
	for _, c := range copies {
		if err == nil {
			err = os.Rename(c.file.Name(), filepath.Join(s.path, c.snapshot.Name))
		}
	}
	if err == nil {
		err = s.dir.Sync()
	}
	for _, c := range copies {
		if err != nil {
			s.discard(c)
			continue
		}
		c.file.Close()
	}
	if err != nil {
		return fmt.Errorf("make snapshots durable: %w", err)
	}
	return nil
}

// syncAll syncs several files at a time: a journal takes them in one go.
func syncAll(copies []*staged) error {
	errs := make([]error, len(copies))
	var group sync.WaitGroup
	slots := make(chan struct{}, 8)
	for i, c := range copies {
		slots <- struct{}{}
		group.Go(func() {
			errs[i] = c.file.Sync()
			<-slots
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

// discard removes a copy under whichever name it has. What cannot be removed
// now is an orphan that the next Clean finds.
func (s *Spool) discard(c *staged) {
	c.file.Close()
	os.Remove(c.file.Name())
	os.Remove(filepath.Join(s.path, c.snapshot.Name))
}
