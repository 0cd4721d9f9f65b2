package daemon_test

import (
	"archive/zip"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/client"
	"mediasandbox/daemon/config"
	"mediasandbox/daemon/daemontest"
	"mediasandbox/internal/testenv"
)

func replay(t *testing.T, d *daemontest.Daemon, ordinal int) api.Replay {
	t.Helper()
	r, err := d.Replay(t.Context(), api.DefaultChat, ordinal)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// sandboxGone waits until the default chat has no sandbox.
func sandboxGone(t *testing.T, d *daemontest.Daemon) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; <-time.After(20 * time.Millisecond) {
		chat, err := d.Chat(t.Context(), api.DefaultChat)
		if err != nil {
			t.Fatal(err)
		}
		if chat.Sandbox == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatal("the idle sandbox is still there")
		}
	}
}

// TestReplay makes cells again that are the same, that differ in a known way,
// and that can't be made again.
func TestReplay(t *testing.T) {
	d := daemontest.Start(t)
	put(t, d, "coffee.png")
	run := func(req api.NewCommand) int {
		t.Helper()
		req.Inputs = []string{"coffee.png"}
		cmd := succeeded(t, d, d.Finish(req))
		if len(cmd.Cells) != 1 {
			t.Fatalf("cells: %+v", cmd.Cells)
		}
		return cmd.Cells[0].Ordinal
	}
	same := run(api.NewCommand{
		Python: "from PIL import Image, ImageFilter\nimport os, sys\n" +
			"im = Image.open('/inputs/coffee.png').filter(ImageFilter.GaussianBlur(3))\nim.save('/outputs/' + os.environ['NAME'] + sys.stdin.read())",
		Env: map[string]string{"NAME": "blurred"}, Stdin: []byte(".png"),
	})
	tail := run(api.NewCommand{Shell: "printf 0123456789; (printf 0123456789; date +%N%N%N) >/outputs/tail.txt"})
	noisy := run(api.NewCommand{Shell: "ffmpeg -v error -f lavfi -i color=gray:s=64x64:d=1:r=10 -vf \"noise=alls=40:allf=t:all_seed=$(date +%N | sed s/^0*//),format=yuv420p\" -c:v libx264 /outputs/noisy.mp4"})
	succeeded(t, d, d.Shell("echo only here >/workspace/note"))
	lost := run(api.NewCommand{Shell: "cp /workspace/note /outputs/note.txt"})

	if r := replay(t, d, same); r.Verdict != api.VerdictIdentical || r.State != api.StateSucceeded || !r.SameImage || r.FirstByte != nil || r.Original != *r.Again {
		t.Errorf("a blurred picture: %+v", r)
	}
	if r := replay(t, d, tail); r.Verdict != api.VerdictDiffers || *r.FirstByte < 10 || *r.FirstByte > 38 || r.Frames != 0 {
		t.Errorf("a text with the time after 10 bytes: %+v", r)
	}
	if r := replay(t, d, noisy); r.Verdict != api.VerdictDiffers || r.Frames != 10 || r.FirstFrame == nil || *r.FirstFrame != 1 || *r.PSNR < 5 || *r.PSNR > 60 {
		t.Errorf("a noisy video: %+v, psnr %v", r, r.PSNR)
	}
	if r := replay(t, d, lost); r.Verdict != api.VerdictMissing || r.State != api.StateFailed || !strings.Contains(r.Reason, "4 earlier commands") || !strings.Contains(r.Reason, "No such file") {
		t.Errorf("a copy of a file of an earlier command: %+v", r)
	}
	p, err := d.Provenance(t.Context(), api.DefaultChat, same)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Inputs) != 1 || p.Inputs[0].Name != "coffee.png" || !p.Inputs[0].Kept || len(p.Inputs[0].SHA256) != 64 || p.Inputs[0].ContentType != "image/png" {
		t.Errorf("inputs: %+v", p.Inputs)
	}
	if p.Env["NAME"] != "blurred" || p.Env["TZ"] != "UTC" || p.Env["PYTHONHASHSEED"] != "0" || p.Stdin.Size != 4 || p.CPUs == 0 || len(p.Image) != 64 || p.Earlier != 0 {
		t.Errorf("provenance: %+v", p)
	}
	if _, err := d.Replay(t.Context(), api.DefaultChat, 99); code(err) != api.CodeCellNotFound {
		t.Errorf("a cell that is not there: %v", err)
	}
}

// TestReplayWithoutItsSandbox makes a cell again, and a cell of that cell,
// after the sandbox and its inputs are gone, by a daemon that did not make it.
func TestReplayWithoutItsSandbox(t *testing.T) {
	d := daemontest.Start(t, func(c *config.Config) { c.Limits.IdleLife = config.Duration(time.Second) })
	put(t, d, "coffee.png")
	succeeded(t, d, d.Finish(api.NewCommand{Shell: "magick /inputs/coffee.png -resize 50% /outputs/half.png", Inputs: []string{"coffee.png"}}))
	succeeded(t, d, d.Finish(api.NewCommand{Shell: "magick /inputs/half.png -flip /outputs/flipped.png", Inputs: []string{"#1"}}))
	sandboxGone(t, d)
	for ordinal := 1; ordinal <= 2; ordinal++ {
		if r := replay(t, d, ordinal); r.Verdict != api.VerdictIdentical {
			t.Errorf("cell #%d: %+v", ordinal, r)
		}
	}
	if kept := glob(t, d, "inputs/*/*"); len(kept) != 1 {
		t.Errorf("kept inputs: %v", kept)
	}
	if err := d.DeleteChat(t.Context(), api.DefaultChat); err != nil {
		t.Fatal(err)
	}
	if kept := glob(t, d, "inputs/*"); len(kept) != 0 {
		t.Errorf("the chat is gone, these inputs are kept: %v", kept)
	}
}

// TestReplayNeedsItsInputs gives no room for kept inputs; the file put again
// will do.
func TestReplayNeedsItsInputs(t *testing.T) {
	d := daemontest.Start(t, func(c *config.Config) { c.Limits.IdleLife, c.Limits.KeptInputs = config.Duration(time.Second), 0 })
	put(t, d, "coffee.png")
	succeeded(t, d, d.Finish(api.NewCommand{Shell: "cp /inputs/coffee.png /outputs/copy.bin; echo >>/outputs/copy.bin", Inputs: []string{"coffee.png"}}))
	sandboxGone(t, d)
	if _, err := d.Replay(t.Context(), api.DefaultChat, 1); code(err) != api.CodeFileNotFound || !strings.Contains(err.Error(), "coffee.png") {
		t.Errorf("without its input: %v", err)
	}
	busy, err := d.Start(t.Context(), api.DefaultChat, api.NewCommand{Shell: "sleep 60"}) // holds the sandbox
	if err != nil {
		t.Fatal(err)
	}
	put(t, d, "coffee.png")
	if r := replay(t, d, 1); r.Verdict != api.VerdictIdentical {
		t.Errorf("with its input put again: %+v", r)
	}
	if err := d.Kill(t.Context(), api.DefaultChat, busy.ID, 0); err != nil {
		t.Error(err)
	}
}

func glob(t *testing.T, d *daemontest.Daemon, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(d.Config.Paths.StateDir, pattern))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestExport reads a chat as an archive, whole and in part.
func TestExport(t *testing.T) {
	d := daemontest.Start(t)
	put(t, d, "coffee.png")
	succeeded(t, d, d.Finish(api.NewCommand{Shell: "cp /inputs/coffee.png /outputs/photo.png", Label: "raw", Inputs: []string{"coffee.png"}}))
	succeeded(t, d, d.Finish(api.NewCommand{Shell: "echo hello >/outputs/notes.txt"}))
	read := func(q client.CellQuery) (string, []byte) {
		t.Helper()
		r, name, err := d.Export(t.Context(), api.DefaultChat, q)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		return name, data
	}
	name, whole := read(client.CellQuery{})
	_, again := read(client.CellQuery{})
	if name != "default.zip" || !bytes.Equal(whole, again) {
		t.Errorf("%s: the same twice: %t", name, bytes.Equal(whole, again))
	}
	z, err := zip.NewReader(bytes.NewReader(whole), int64(len(whole)))
	if err != nil {
		t.Fatal(err)
	}
	photo, err := z.Open("default/raw/photo.png")
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(photo)
	want, _ := os.ReadFile(testenv.Media(t, "coffee.png"))
	if err != nil || len(want) == 0 || !bytes.Equal(got, want) {
		t.Errorf("the photo in the archive: %d bytes, %v", len(got), err)
	}
	_, texts := read(client.CellQuery{Type: "text"})
	if z, err := zip.NewReader(bytes.NewReader(texts), int64(len(texts))); err != nil || len(z.File) != 2 || z.File[0].Name != "default/-/notes.txt" {
		t.Errorf("texts: %v, %v", z, err)
	}
	if _, _, err := d.Export(t.Context(), api.DefaultChat, client.CellQuery{Label: "none"}); code(err) != api.CodeCellNotFound {
		t.Errorf("no cell matches: %v", err)
	}
	for q, want := range map[client.CellQuery]int{
		{Text: "PHOTO"}: 1, {Text: "#2"}: 1, {Pill: api.PillFile}: 1, {Pill: api.PillVideoEdit}: 0, {Type: "image/png"}: 1, {Label: "raw"}: 1, {Label: "raw", Type: "text"}: 0, {}: 2,
	} {
		if cells, err := d.FindCells(t.Context(), api.DefaultChat, q); err != nil || len(cells) != want {
			t.Errorf("%+v: %d cells, want %d (%v)", q, len(cells), want, err)
		}
	}
}
