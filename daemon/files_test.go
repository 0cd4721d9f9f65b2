package daemon_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/config"
	"mediasandbox/daemon/daemontest"
)

// TestLargeFilesTakeNoMemory sends 2 GB through the daemon: in as a file, out as
// a tree. Its peak of memory must grow by less than 32 MB.
func TestLargeFilesTakeNoMemory(t *testing.T) {
	const size, most = 2 << 30, 32 << 20
	d := daemontest.Spawn(t, func(c *config.Config) { c.Limits.Disk = size + 256<<20 })
	succeeded(t, d.Daemon, d.Shell("true"))
	before := d.PeakMemory()
	// Each 64 KiB differ from the others, so that what gets lost shows.
	sent := sha256.New()
	source := io.TeeReader(&blocks{left: size}, sent)
	info, err := d.PutFile(t.Context(), api.DefaultChat, "/workspace/tree/big", source)
	if err != nil || info.Size != size {
		t.Fatalf("%+v, %v", info, err)
	}
	got := sha256.New()
	_, err = d.GetTree(t.Context(), api.DefaultChat, "/workspace/tree", func(r io.Reader) error {
		tr := tar.NewReader(r)
		if _, err := tr.Next(); err != nil {
			return err
		}
		_, err := io.Copy(got, tr)
		return err
	})
	if err != nil || !bytes.Equal(got.Sum(nil), sent.Sum(nil)) {
		t.Errorf("the file came back as another one: %v", err)
	}
	if grown := d.PeakMemory() - before; grown > most {
		t.Errorf("the daemon grew by %d MB", grown>>20)
	}
}

// blocks reads as that many bytes, of which no 64 KiB are like others.
type blocks struct {
	left, serial int64
}

func (b *blocks) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, io.EOF
	}
	n := min(int64(len(p)), b.left, 64<<10)
	b.serial++
	copy(p, fmt.Appendf(nil, "block %d\n", b.serial))
	b.left -= n
	return int(n), nil
}

// TestGuestTricks lets the guest put links where the host works.
func TestGuestTricks(t *testing.T) {
	d := daemontest.Start(t)
	ctx := t.Context()
	secret := filepath.Join(d.Dir, "secret")
	if err := os.WriteFile(secret, []byte("the host's"), 0o644); err != nil {
		t.Fatal(err)
	}
	succeeded(t, d, d.Shell(`cd /workspace
		ln -s `+secret+` file; ln -s / root; ln -s .. up; ln -s /inputs inputs; mkdir real; ln -s real alias; ln -s nowhere dangling
		echo one >a; ln a b`))
	refused := func(what string, err error) {
		t.Helper()
		var known *api.Error
		if !errors.As(err, &known) || known.Code != api.CodeInvalid && known.Code != api.CodeFileNotFound {
			t.Errorf("%s: %v", what, err)
		}
	}
	tree := func() io.Reader { return tarOf(t, tar.Header{Name: "x", Typeflag: tar.TypeReg}) }
	for _, p := range []string{
		"/workspace/file", "/workspace/root" + secret, "/workspace/up/x", "/workspace/inputs/x",
		"/workspace/alias/x", "/workspace/../../" + secret, "/outputs/../workspace/root/etc/passwd", "/workspace/dangling/x",
	} {
		_, _, err := d.OpenFile(ctx, api.DefaultChat, p)
		refused("get "+p, err)
		if strings.Count(p, "/") == 2 {
			continue // the link itself may be replaced, removed and looked at
		}
		_, err = d.PutFile(ctx, api.DefaultChat, p, strings.NewReader("overwritten"))
		refused("put "+p, err)
		_, err = d.PutTree(ctx, api.DefaultChat, p, true, tree())
		refused("put the tree "+p, err)
		_, err = d.MoveFile(ctx, api.DefaultChat, api.MoveFile{From: "/workspace/a", To: p, Replace: true})
		refused("move to "+p, err)
		refused("rm "+p, d.RemoveFile(ctx, api.DefaultChat, p))
		_, err = d.StatFile(ctx, api.DefaultChat, p)
		refused("stat "+p, err)
	}
	// What is put over a link takes its place, and leaves what it stood for.
	for _, name := range []string{"file", "b"} {
		if _, err := d.PutFile(ctx, api.DefaultChat, "/workspace/"+name, strings.NewReader("new")); err != nil {
			t.Error(err)
		}
	}
	if text, err := os.ReadFile(secret); err != nil || string(text) != "the host's" {
		t.Errorf("the host's file holds %q, %v", text, err)
	}
	if out, _ := d.Printed(d.Shell("cd /workspace; cat a b file; stat -c %h a; ls -A | grep part")); out != "one\nnewnew1\n" {
		t.Errorf("the guest sees %q", out)
	}
	// A FIFO, which gVisor lets no guest make on the host, would not block us.
	data := filepath.Join(d.Config.Paths.StateDir, "disks", d.SandboxID(), "data", "workspace")
	if err := unix.Mkfifo(filepath.Join(data, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, _, err := d.OpenFile(ctx, api.DefaultChat, "/workspace/fifo")
	refused("get a FIFO", err)
}

func tarOf(t *testing.T, entries ...tar.Header) *bytes.Buffer {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, h := range entries {
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(make([]byte, h.Size)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &out
}

// TestRefusedTreesLeaveNothing sends trees that are refused half-way.
func TestRefusedTreesLeaveNothing(t *testing.T) {
	d := daemontest.Start(t, func(c *config.Config) { c.Limits.Disk = 64 << 20 })
	succeeded(t, d, d.Shell("mkdir /workspace/old && echo kept >/workspace/old/file"))
	good := tar.Header{Name: "good", Typeflag: tar.TypeReg, Size: 1 << 20}
	huge := tarOf(t, good)
	huge.Truncate(huge.Len() - 1024)
	w := tar.NewWriter(huge)
	if err := w.WriteHeader(&tar.Header{Name: "huge", Typeflag: tar.TypeReg, Size: 1 << 40}); err != nil {
		t.Fatal(err)
	}
	for want, r := range map[string]io.Reader{
		`entry "../evil" leads out`:              tarOf(t, good, tar.Header{Name: "../evil", Typeflag: tar.TypeReg}),
		`entry "/etc/evil" is absolute`:          tarOf(t, good, tar.Header{Name: "/etc/evil", Typeflag: tar.TypeReg}),
		`entry "s" is a symbolic link`:           tarOf(t, good, tar.Header{Name: "s", Linkname: "/etc", Typeflag: tar.TypeSymlink}),
		`entry "h" is a hard link`:               tarOf(t, good, tar.Header{Name: "h", Linkname: "good", Typeflag: tar.TypeLink}),
		`entry "good" comes twice`:               tarOf(t, good, good),
		`entry "huge" claims 1099511627776 byte`: huge,
		"send a whole tar stream":                strings.NewReader(strings.Repeat("no tar at all ", 100)),
	} {
		_, err := d.PutTree(t.Context(), api.DefaultChat, "/workspace/old", true, r)
		var known *api.Error
		if !errors.As(err, &known) || known.Code != api.CodeInvalid || !strings.Contains(known.Message+known.Hint, want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	full := tarOf(t, tar.Header{Name: "a", Typeflag: tar.TypeReg, Size: 50 << 20})
	if _, err := d.PutTree(t.Context(), api.DefaultChat, "/workspace/new", false, full); err != nil {
		t.Error(err)
	}
	_, err := d.PutFile(t.Context(), api.DefaultChat, "/workspace/more", &blocks{left: 50 << 20})
	var known *api.Error
	if !errors.As(err, &known) || known.Code != api.CodeDiskFull {
		t.Errorf("a file that does not fit: %v", err)
	}
	if out, _ := d.Printed(d.Shell("cd /workspace && find . -type f | sort && cat old/file")); out != "./new/a\n./old/file\nkept\n" {
		t.Errorf("the sandbox holds %q", out)
	}
}

// TestTreesReachTheGuest puts a tree below /inputs and /outputs.
func TestTreesReachTheGuest(t *testing.T) {
	d := daemontest.Start(t)
	ctx := t.Context()
	tree := func() io.Reader {
		return tarOf(t, tar.Header{Name: "d/", Typeflag: tar.TypeDir}, tar.Header{Name: "d/x.txt", Typeflag: tar.TypeReg, Size: 3})
	}
	for _, p := range []string{"/inputs/t", "/outputs/t"} {
		if info, err := d.PutTree(ctx, api.DefaultChat, p, false, tree()); err != nil || !info.Dir || info.Path != p {
			t.Errorf("%+v, %v", info, err)
		}
	}
	succeeded(t, d, d.Finish(api.NewCommand{Shell: "cmp /inputs/t/d/x.txt /outputs/t/d/x.txt", Inputs: []string{"t"}}))
	cells, err := d.Cells(ctx, api.DefaultChat)
	if err != nil || len(cells) != 1 || cells[0].File.Path != "t/d/x.txt" || cells[0].Command != "" {
		t.Errorf("cells: %+v, %v", cells, err)
	}
}

// TestRanges reads parts of a file, and goes on after a cut.
func TestRanges(t *testing.T) {
	d := daemontest.Start(t)
	text := make([]byte, 100_000)
	for i := range text {
		text[i] = byte(rand.IntN(256))
	}
	if _, err := d.PutFile(t.Context(), api.DefaultChat, "/workspace/f", bytes.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	hc := &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		return net.Dial("unix", d.Config.Paths.Socket)
	}}}
	defer hc.CloseIdleConnections()
	get := func(header string) (int, []byte, http.Header) {
		req, err := http.NewRequest(http.MethodGet, "http://d/v1/chats/default/files/content?path=/workspace/f", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Range", header)
		res, err := hc.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		if err := errors.Join(err, res.Body.Close()); err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, body, res.Header
	}
	for header, want := range map[string][]byte{
		"bytes=0-0": text[:1], "bytes=100-299": text[100:300], "bytes=99990-": text[99990:], "bytes=-7": text[99993:],
		"bytes=50000-999999": text[50000:],
	} {
		if code, body, h := get(header); code != http.StatusPartialContent || !bytes.Equal(body, want) || h.Get("Content-Range") == "" {
			t.Errorf("%s: %d with %d bytes, %s", header, code, len(body), h.Get("Content-Range"))
		}
	}
	if code, body, h := get("bytes=100000-"); code != http.StatusRequestedRangeNotSatisfiable || h.Get("Content-Range") != "bytes */100000" {
		t.Errorf("beyond the end: %d %s", code, body)
	}
	sum := sha256.Sum256(text)
	if out, _ := d.Printed(d.Shell("sha256sum </workspace/f")); !strings.HasPrefix(out, hex.EncodeToString(sum[:])) {
		t.Errorf("the guest has %s", out)
	}
}

// TestReplayWithADirectory makes a cell again that came from a directory, when
// the sandbox that had it is gone.
func TestReplayWithADirectory(t *testing.T) {
	d := daemontest.Start(t, func(c *config.Config) { c.Limits.IdleLife = config.Duration(time.Second) })
	tree := tarOf(t, tar.Header{Name: "b", Typeflag: tar.TypeReg, Size: 7}, tar.Header{Name: "a/x", Typeflag: tar.TypeReg, Size: 3})
	if _, err := d.PutTree(t.Context(), api.DefaultChat, "/inputs/t", false, tree); err != nil {
		t.Fatal(err)
	}
	cmd := succeeded(t, d, d.Finish(api.NewCommand{Shell: "cd /inputs/t; cat b a/x >/outputs/both", Inputs: []string{"t"}}))
	if len(cmd.Cells) != 1 || cmd.Cells[0].File.Size != 10 {
		t.Fatalf("cells: %+v", cmd.Cells)
	}
	sandboxGone(t, d)
	if r := replay(t, d, 1); r.Verdict != api.VerdictIdentical {
		t.Errorf("%+v", r)
	}
}
