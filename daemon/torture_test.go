package daemon_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/config"
	"mediasandbox/daemon/daemontest"
	"mediasandbox/uploader"
)

// writer is a way in which programs write files, as a command in a sandbox. It
// works in a directory of its own below /outputs.
type writer struct {
	name, shell, python string
	// files is how many are to be published; broken says that it ends badly.
	files  int
	broken bool
}

// tortures are the writers of the torture test.
var tortures = []writer{
	{name: "slow append", files: 1, shell: `exec 5>held.bin; for i in 1 2 3 4; do echo piece $i >&5; sleep 0.8; done`},
	{name: "append by reopening", files: 1, shell: `for i in 1 2 3 4; do echo piece $i >>again.log; sleep 0.5; done`},
	{name: "mmap", files: 1, python: `
import mmap, os, time
f = os.open("mapped.bin", os.O_RDWR | os.O_CREAT)
os.ftruncate(f, 1 << 20)
m = mmap.mmap(f, 1 << 20)
os.close(f)
for i in range(4):
    m[i << 18:(i << 18) + 5] = b"piece"
    time.sleep(0.8)
m.close()`},
	{name: "O_TRUNC rewrite", files: 1, python: `
import time
for i in range(6):
    with open("again.txt", "w") as f:
        f.write(str(i) * (3000 - 400 * i))
    time.sleep(0.1)`},
	{name: "sparse", files: 1, python: `
with open("holes.img", "wb") as f:
    f.write(b"start")
    f.seek(64 << 20)
    f.write(b"end")`},
	{name: "hard link then unlink", files: 1, shell: `head -c 100000 /dev/urandom >first.tmp; ln first.tmp linked.bin; sleep 0.3; rm first.tmp`},
	// In one process, since each rename finishes the file, and a slow machine
	// may take longer to start mv than a finished file waits.
	{name: "rename over", files: 1, python: `
for data in [os.urandom(50000) for i in range(3)]:
    with open("new.tmp", "wb") as f:
        f.write(data)
    os.rename("new.tmp", "over.bin")`},
	{name: "copy_file_range", files: 1, python: `
import os
with open("/workspace/from", "wb") as f:
    f.write(os.urandom(3 << 20))
src, dst = os.open("/workspace/from", os.O_RDONLY), os.open("copied.bin", os.O_WRONLY | os.O_CREAT)
left = 3 << 20
while left:
    try:
        n = os.copy_file_range(src, dst, min(left, 1 << 20))
    except OSError: # what programs do where the kernel does not have it
        n = os.sendfile(dst, src, None, min(left, 1 << 20))
    left -= n`},
	{name: "ffmpeg faststart", files: 1, shell: `ffmpeg -v error -i /inputs/hallway.avi -c:v libx264 -preset ultrafast -pix_fmt yuv420p -movflags +faststart movie.mp4`},
	{name: "ffmpeg segmenter", files: 4, shell: `ffmpeg -v error -f lavfi -i testsrc=d=4:r=10:s=320x180 -c:v libx264 -g 10 -f segment -segment_time 1 -reset_timestamps 1 part-%d.ts`},
	{name: "ImageMagick sequence", files: 6, shell: `magick -size 64x64 xc:red xc:green xc:blue xc:white xc:gray xc:black frame-%02d.png`},
	{name: "zipfile", files: 1, python: `
import time, zipfile
with zipfile.ZipFile("all.zip", "w") as z:
    for i in range(4):
        z.writestr(f"{i}.txt", str(i) * 1000)
        time.sleep(0.4)`},
	// What a process leaves that kills itself is its final file.
	{name: "crash mid-write", files: 2, broken: true, shell: `echo whole >whole.txt; exec 5>left.bin; head -c 70000 /dev/zero >&5; kill -9 $$`},
	{name: "killed background", files: 0, shell: `(exec 5>half.bin; head -c 70000 /dev/zero >&5; sleep 60) & sleep 0.3`},
	{name: "0 bytes", files: 1, shell: `: >empty`},
	{name: "255 bytes of name", files: 1, python: `
open("n" * 255, "w").write("long")`},
	{name: "newline", files: 1, python: `
open("two\nlines.txt", "w").write("two")`},
	{name: "invalid UTF-8", files: 1, python: `
open(b"caf\xe9 \xff\xfe.png", "w").write("bad")`},
	{name: "emoji", files: 1, python: `
open("\U0001f3ac fin\u00e1le 100%.mp4", "w").write("movie")`},
	{name: "names like ..", files: 3, shell: `echo 1 >a..b...; echo 2 >'x..'; mkdir '~..' && echo 3 >'~../~...'; mkdir ...; echo hidden >.../...`},
	{name: "deep directories", files: 20, python: `
import os
for i in range(20):
    sub = "d/" + "x/" * i + f"leaf{i}"
    os.makedirs(sub)
    open(sub + "/file.txt", "w").write(str(i))`},
}

// wanted reads, after all writers have ended, what is in /outputs: the digest of
// each file by its name, as Python bytes in hex.
const wanted = `
import hashlib, os
for d, _, files in os.walk(b"/outputs"):
    for f in files:
        p = os.path.join(d, f)
        with open(p, "rb") as r:
            print(hashlib.file_digest(r, "sha256").hexdigest(), os.path.relpath(p, b"/outputs").hex())`

// TestTorture runs every writer as a real process of a real sandbox, many at a
// time: what is published at the end is each final file, once, byte for byte,
// and nothing that its writer did not finish.
func TestTorture(t *testing.T) {
	d := daemontest.Start(t, func(c *config.Config) { c.Limits.Running = 6 })
	put(t, d, "hallway.avi")
	ids := make(map[string]string)
	for i, w := range tortures {
		dir := fmt.Sprintf("/outputs/w%d", i)
		req := api.NewCommand{Shell: "mkdir " + dir + " && cd " + dir + " && " + w.shell}
		if w.python != "" {
			req = api.NewCommand{Python: "import os\nos.mkdir('" + dir + "')\nos.chdir('" + dir + "')" + w.python}
		}
		cmd, err := d.Client.Start(t.Context(), api.DefaultChat, req)
		if err != nil {
			t.Fatal(err)
		}
		ids[w.name] = cmd.ID
	}
	for _, w := range tortures {
		cmd, err := d.Wait(t.Context(), api.DefaultChat, ids[w.name])
		if err != nil {
			t.Fatal(err)
		}
		if ok := cmd.State == api.StateSucceeded; ok == w.broken {
			_, said := d.Printed(cmd)
			t.Errorf("%s ended as %s (%s): %s", w.name, cmd.State, cmd.Reason, said)
		}
	}
	sums, _ := d.Printed(succeeded(t, d, d.Finish(api.NewCommand{Python: wanted})))
	checkTortured(t, d, sums)
}

// checkTortured compares the cells with the files, given as digest and name in
// hex.
func checkTortured(t *testing.T, d *daemontest.Daemon, sums string) {
	t.Helper()
	final := make(map[string]string)
	for line := range strings.Lines(sums) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		raw, err := hex.DecodeString(name)
		if err != nil {
			t.Fatal(err)
		}
		final[uploader.Path(raw).String()] = sum
	}
	versions := published(t, d)
	cells, err := d.Cells(t.Context(), api.DefaultChat)
	if err != nil {
		t.Fatal(err)
	}
	count := make(map[string]int)
	for _, cell := range cells {
		dir, name, _ := strings.Cut(cell.File.Path, "/")
		count[dir]++
		if name == "half.bin" {
			t.Errorf("a half-written file is cell #%d of %s", cell.Ordinal, dir)
		}
		if final[cell.File.Path] != cell.File.SHA256 {
			t.Errorf("cell #%d, %s, is not the final file", cell.Ordinal, cell.File.Path)
		}
		if sum := sha256.Sum256(content(t, d, cell.Ordinal)); hex.EncodeToString(sum[:]) != cell.File.SHA256 {
			t.Errorf("cell #%d, %s: the store has something else", cell.Ordinal, cell.File.Path)
		}
		if n := len(versions[cell.File.Path]); n != 1 {
			t.Errorf("%s was published %d times", cell.File.Path, n)
		}
	}
	for i, w := range tortures {
		if got := count[fmt.Sprintf("w%d", i)]; got != w.files {
			t.Errorf("%s: %d files are published, want %d", w.name, got, w.files)
		}
	}
}
