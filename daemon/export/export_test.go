package export_test

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/text/cases"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/export"
)

// files are cells' contents by ordinal.
type files map[int]string

func (f files) open(_ context.Context, ordinal int) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader(f[ordinal])), nil
}

func entry(ordinal int, label, name, content string) export.Entry {
	sum := sha256.Sum256([]byte(content))
	return export.Entry{Cell: api.Cell{
		Ordinal: ordinal, Label: label, State: api.CellPublished, CreatedAt: time.Date(2026, 2, 3, 4, 5, 6, 7, time.UTC),
		File: api.File{Name: name, Size: int64(len(content)), SHA256: hex.EncodeToString(sum[:])},
	}}
}

func write(t *testing.T, chat api.Chat, contents files, entries ...export.Entry) []byte {
	t.Helper()
	var buf bytes.Buffer
	if err := export.Write(t.Context(), &buf, chat, entries, contents.open); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// unpack reads an archive by name.
func unpack(t *testing.T, archive []byte) map[string]string {
	t.Helper()
	z, err := zip.NewReader(bytes.NewReader(archive), int64(len(archive)))
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]string)
	for _, f := range z.File {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		found[f.Name] = string(text)
	}
	return found
}

func TestArchive(t *testing.T) {
	contents := files{1: "one", 2: "two", 3: "three"}
	lost := entry(4, "", "gone.png", "")
	lost.Missing = "it is lost"
	made := entry(2, "title cards", "card.png", "two")
	made.Provenance = &api.Provenance{Command: "x-1", Argv: []string{"a<b"}}
	chat := api.Chat{ID: "c-1", Title: "Spring drop"}
	entries := []export.Entry{entry(1, "", "cut.mp4", "one"), made, entry(3, "", "cut.mp4", "three"), lost}
	archive := write(t, chat, contents, entries...)
	if again := write(t, chat, contents, entries...); !bytes.Equal(archive, again) {
		t.Error("made twice, the archives differ")
	}
	found := unpack(t, archive)
	for name, want := range map[string]string{
		"Spring drop/-/cut.mp4": "one", "Spring drop/title cards/card.png": "two", "Spring drop/-/cut-3.mp4": "three",
	} {
		if found[name] != want {
			t.Errorf("%s holds %q, want %q", name, found[name], want)
		}
	}
	var m export.Manifest
	if err := json.Unmarshal([]byte(found["Spring drop/manifest.json"]), &m); err != nil {
		t.Fatal(err)
	}
	if len(m.Cells) != 4 || m.Chat != "c-1" || m.Cells[1].Provenance.Argv[0] != "a<b" || m.Cells[3].Missing != "it is lost" || m.Cells[3].Path != "" {
		t.Errorf("manifest: %+v", m)
	}
	if len(found) != 4 {
		t.Errorf("the archive holds %d files", len(found))
	}
}

func TestAFileThatIsNotItsRecordEndsTheArchive(t *testing.T) {
	err := export.Write(t.Context(), io.Discard, api.Chat{ID: "c"}, []export.Entry{entry(1, "", "a", "right")}, files{1: "wrong"}.open)
	if err == nil || !strings.Contains(err.Error(), "cell #1") {
		t.Errorf("error %v", err)
	}
}

// TestNames gives what a guest may have called its files, and labels that a
// caller may have chosen.
func TestNames(t *testing.T) {
	long := strings.Repeat("ä", 200) + ".png"
	names := []string{
		"..", ".", "", "../../etc/passwd", "a/b", `a\b`, "CON", "con.txt", "Nul.tar.gz", "COM1", "lpt9 .x", "trailing. ", "x:y", "new\nline",
		"bad\xff.png", "Frame.png", "frame.PNG", "FRAME.png", "Straße", "STRASSE", "e\u0301", "é", long, long, "...", "___", "a\u202egnp.exe", ".hidden", "😀.gif",
	}
	contents := files{}
	var entries []export.Entry
	for i, name := range names {
		contents[i+1] = name + "!"
		entries = append(entries, entry(i+1, []string{"", "..", "a/b", "nul"}[i%4], name, name+"!"))
	}
	found := unpack(t, write(t, api.Chat{ID: "c", Title: "../../up"}, contents, entries...))
	if len(found) != len(names)+1 {
		t.Errorf("%d files for %d cells and a manifest", len(found), len(names))
	}
	folded := make(map[string]string)
	var got []string
	for name, content := range found {
		if path.Clean(name) != name || path.IsAbs(name) || strings.Contains(name, `\`) || strings.Count(name, "/") > 2 {
			t.Errorf("%q leads elsewhere", name)
		}
		for part := range strings.SplitSeq(name, "/") {
			if part == "" || part == ".." || len(part) > 200 || strings.HasSuffix(part, " ") || strings.HasSuffix(part, ".") || strings.ContainsAny(part, "<>:\"|?*\x00\n\u202e") {
				t.Errorf("part %q of %q can't be unpacked everywhere", part, name)
			}
		}
		key := cases.Fold().String(name)
		if other, ok := folded[key]; ok {
			t.Errorf("%q and %q are one name where case does not count", name, other)
		}
		folded[key] = name
		got = append(got, content)
	}
	for _, want := range contents {
		if !slices.Contains(got, want) {
			t.Errorf("%q is not in the archive", want)
		}
	}
}

func FuzzNames(f *testing.F) {
	f.Add("a.png", "label", "title")
	f.Add("..", "CON", "x/../y")
	f.Fuzz(func(t *testing.T, name, label, title string) {
		found := unpack(t, write(t, api.Chat{ID: "c", Title: title}, files{1: "x", 2: "y"}, entry(1, label, name, "x"), entry(2, label, name, "y")))
		if len(found) != 3 {
			t.Errorf("%d files", len(found))
		}
		for full := range found {
			for part := range strings.SplitSeq(full, "/") {
				if part == "" || part == ".." || part == "." || len(part) > 220 {
					t.Errorf("part %q of %q", part, full)
				}
			}
		}
	})
}

// zeros is a large file of nothing.
type zeros struct{ left int64 }

func (z *zeros) Read(p []byte) (int, error) {
	n := min(int64(len(p)), z.left)
	clear(p[:n])
	z.left -= n
	if n == 0 {
		return 0, io.EOF
	}
	return int(n), nil
}

// tail keeps the end of what is written to it.
type tail struct {
	end   []byte
	total int64
}

func (w *tail) Write(p []byte) (int, error) {
	w.total += int64(len(p))
	w.end = append(w.end, p...)
	if n := len(w.end) - 4096; n > 0 {
		w.end = append(w.end[:0], w.end[n:]...)
	}
	return len(p), nil
}

// TestZIP64 writes a file of more than 4 GiB and reads the directory's end.
func TestZIP64(t *testing.T) {
	const size = 5 << 30
	sum := sha256.New()
	if _, err := io.Copy(sum, &zeros{size}); err != nil {
		t.Fatal(err)
	}
	e := entry(1, "", "big.bin", "")
	e.Cell.File.Size, e.Cell.File.SHA256 = size, hex.EncodeToString(sum.Sum(nil))
	var w tail
	err := export.Write(t.Context(), &w, api.Chat{ID: "c"}, []export.Entry{e}, func(context.Context, int) (io.ReadCloser, error) {
		return io.NopCloser(&zeros{size}), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if w.total < size || !bytes.Contains(w.end, []byte("PK\x06\x06")) {
		t.Errorf("%d bytes, and no ZIP64 record at their end", w.total)
	}
}
