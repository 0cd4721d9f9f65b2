package treetar_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"mediasandbox/internal/treetar"
)

func openRoot(t *testing.T, dir string) *os.Root {
	t.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return root
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestThereAndBack(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	names := []string{"a.txt", "deep/er/b", "with space\nand line", "not utf-8 \xff\xfe", strings.Repeat("n", 255), "ünï/日本.png"}
	for i, n := range names {
		write(t, from, n, strings.Repeat("x", i*1000))
	}
	when := time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
	if err := errors.Join(
		os.Mkdir(filepath.Join(from, "empty"), 0o755), os.Chmod(filepath.Join(from, "a.txt"), 0o4777),
		os.Chtimes(filepath.Join(from, "a.txt"), when, when),
		os.Symlink("/etc/passwd", filepath.Join(from, "link")), unix.Mkfifo(filepath.Join(from, "fifo"), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	var skipped []string
	var stream bytes.Buffer
	err := treetar.Pack(openRoot(t, from), &stream, func(name string, _ fs.FileMode) error {
		skipped = append(skipped, name)
		return nil
	})
	if err != nil || strings.Join(skipped, " ") != "fifo link" {
		t.Fatalf("skipped %q, %v", skipped, err)
	}
	var seen int64
	u := treetar.Unpacker{Root: openRoot(t, to), Room: 1 << 20, Observe: func(string) io.WriteCloser { return counter{&seen} }}
	if err := u.Unpack(&stream); err != nil {
		t.Fatal(err)
	}
	for i, n := range names {
		if got, err := os.ReadFile(filepath.Join(to, n)); err != nil || len(got) != i*1000 {
			t.Errorf("%q holds %d bytes, %v", n, len(got), err)
		}
	}
	if seen != 15000 {
		t.Errorf("%d bytes were observed", seen)
	}
	st, err := os.Stat(filepath.Join(to, "a.txt"))
	if err != nil || st.Mode() != 0o755 || !st.ModTime().Equal(when) {
		t.Errorf("a.txt is %v, %v", st, err)
	}
	if st, err := os.Stat(filepath.Join(to, "empty")); err != nil || !st.IsDir() {
		t.Errorf("the empty directory: %v, %v", st, err)
	}
}

type counter struct{ n *int64 }

func (c counter) Write(p []byte) (int, error) { *c.n += int64(len(p)); return len(p), nil }
func (c counter) Close() error                { return nil }

func reg(name string) tar.Header { return tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644} }

// TestHostileEntries holds that each is refused by name, and that nothing lies
// outside of the directory.
func TestHostileEntries(t *testing.T) {
	link := func(flag byte, name, to string) tar.Header {
		return tar.Header{Typeflag: flag, Name: name, Linkname: to}
	}
	for what, tt := range map[string]struct {
		entries []tar.Header
		want    string
	}{
		"parent":           {[]tar.Header{reg("../out")}, `"../out" leads out`},
		"hidden parent":    {[]tar.Header{reg("a/b/../../../out")}, "leads out"},
		"harmless parent":  {[]tar.Header{reg("a/../b")}, "leads out"},
		"absolute":         {[]tar.Header{reg("/etc/out")}, "is absolute"},
		"no name":          {[]tar.Header{reg("")}, "no proper name"},
		"symlink":          {[]tar.Header{link(tar.TypeSymlink, "s", "/etc")}, `"s" is a symbolic link`},
		"through symlink":  {[]tar.Header{link(tar.TypeSymlink, "s", ".."), reg("s/out")}, "is a symbolic link"},
		"hard link":        {[]tar.Header{reg("a"), link(tar.TypeLink, "h", "a")}, `"h" is a hard link`},
		"hard link out":    {[]tar.Header{link(tar.TypeLink, "h", "/etc/passwd")}, "is a hard link"},
		"device":           {[]tar.Header{{Typeflag: tar.TypeChar, Name: "null", Devmajor: 1, Devminor: 3}}, "is a device"},
		"block device":     {[]tar.Header{{Typeflag: tar.TypeBlock, Name: "sda", Devmajor: 8}}, "is a device"},
		"fifo":             {[]tar.Header{{Typeflag: tar.TypeFifo, Name: "f"}}, "is a FIFO"},
		"twice":            {[]tar.Header{reg("a"), reg("./a")}, "comes twice"},
		"file is dir":      {[]tar.Header{reg("a/b"), reg("a")}, "comes twice"},
		"dir is file":      {[]tar.Header{reg("a"), {Typeflag: tar.TypeDir, Name: "a/"}}, `"a/"`},
		"below a file":     {[]tar.Header{reg("a"), reg("a/b")}, `"a/b"`},
		"long name":        {[]tar.Header{reg(strings.Repeat("n", 256))}, "over 255 bytes"},
		"long path":        {[]tar.Header{reg(strings.Repeat("abcdefgh/", 500) + "f")}, "over 4096 bytes"},
		"deep":             {[]tar.Header{reg(strings.Repeat("d/", 40) + "f")}, "32 levels deep"},
		"huge":             {[]tar.Header{{Typeflag: tar.TypeReg, Name: "huge", Size: 1 << 50}}, `"huge" claims 1125899906842624 bytes`},
		"hugest":           {[]tar.Header{{Typeflag: tar.TypeReg, Name: "huge", Size: math.MaxInt64}}, "claims"},
		"more than room":   {[]tar.Header{{Typeflag: tar.TypeReg, Name: "big", Size: 1<<20 + 1}}, "claims 1048577 bytes, and 1048576 are free"},
		"contiguous":       {[]tar.Header{{Typeflag: tar.TypeCont, Name: "c"}}, "unknown kind"},
		"the tree, a file": {[]tar.Header{reg(".")}, `"."`},
	} {
		t.Run(what, func(t *testing.T) {
			around := t.TempDir()
			dir := filepath.Join(around, "tree")
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			u := treetar.Unpacker{Root: openRoot(t, dir), Room: 1 << 20}
			err := u.Unpack(stream(t, tt.entries))
			var refused *treetar.EntryError
			if !errors.As(err, &refused) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
			if left, err := os.ReadDir(around); err != nil || len(left) != 1 {
				t.Errorf("beside the tree: %v, %v", left, err)
			}
		})
	}
}

// stream writes headers only; those with a size promise content that never
// comes.
func stream(t *testing.T, entries []tar.Header) io.Reader {
	t.Helper()
	var out bytes.Buffer
	for _, h := range entries {
		w := tar.NewWriter(&out)
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		_ = w.Flush() // it misses the content
	}
	out.Write(make([]byte, 1024))
	return &out
}

func TestTooManyEntries(t *testing.T) {
	r, w := io.Pipe()
	go func() {
		tw := tar.NewWriter(w)
		for i := range treetar.MaxEntries + 1 {
			h := tar.Header{Typeflag: tar.TypeDir, Name: "d" + strconv.Itoa(i%10) + "/"}
			if tw.WriteHeader(&h) != nil {
				return
			}
		}
	}()
	u := treetar.Unpacker{Root: openRoot(t, t.TempDir())}
	if err := u.Unpack(r); err == nil || !strings.Contains(err.Error(), "one too many") {
		t.Error(err)
	}
	r.CloseWithError(io.ErrClosedPipe)
}

// TestCutOff holds that half a stream is no tree.
func TestCutOff(t *testing.T) {
	from := t.TempDir()
	write(t, from, "a", strings.Repeat("x", 10000))
	write(t, from, "b", "y")
	var whole bytes.Buffer
	if err := treetar.Pack(openRoot(t, from), &whole, nil); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{100, 600, 5000, whole.Len() - 1100} {
		cut := io.MultiReader(bytes.NewReader(whole.Bytes()[:n]), broken{})
		u := treetar.Unpacker{Root: openRoot(t, t.TempDir()), Room: 1 << 20}
		if err := u.Unpack(cut); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("after %d bytes: %v", n, err)
		}
	}
}

// broken reads as a connection that broke.
type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// TestShrinking packs a file that gets shorter while it is read.
func TestShrinking(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "f", strings.Repeat("x", 1<<20))
	w := writerFunc(func(p []byte) (int, error) { return len(p), os.Truncate(filepath.Join(dir, "f"), 5) })
	err := treetar.Pack(openRoot(t, dir), w, nil)
	if err == nil || !strings.Contains(err.Error(), `"f" shrank`) {
		t.Error(err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func FuzzUnpack(f *testing.F) {
	f.Add([]byte("../x"), byte(tar.TypeReg), int64(3))
	f.Add([]byte("a/b"), byte(tar.TypeSymlink), int64(0))
	f.Fuzz(func(t *testing.T, name []byte, flag byte, size int64) {
		around := t.TempDir()
		dir := filepath.Join(around, "tree")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		w := tar.NewWriter(&out)
		if w.WriteHeader(&tar.Header{Typeflag: flag, Name: string(name), Size: size % (1 << 20)}) != nil {
			return
		}
		_ = w.Flush()
		u := treetar.Unpacker{Root: openRoot(t, dir), Room: 1 << 10}
		_ = u.Unpack(&out)
		if left, err := os.ReadDir(around); err != nil || len(left) != 1 {
			t.Errorf("beside the tree: %v, %v", left, err)
		}
	})
}
