package daemon_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/config"
	"mediasandbox/daemon/daemontest"
)

// published returns every version that was ever published, by path.
func published(t *testing.T, d *daemontest.Daemon) map[string][]api.Cell {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	found := make(map[string][]api.Cell)
	// A marker command's end closes the list.
	marker := d.Shell("true")
	err := d.Events(ctx, api.DefaultChat, 0, func(ev api.Event) error {
		if ev.Type == api.EventCellPending {
			found[ev.Cell.File.Path] = append(found[ev.Cell.File.Path], *ev.Cell)
		}
		if ev.Command != nil && ev.Command.ID == marker.ID && ev.Command.State.Ended() {
			cancel()
		}
		return nil
	})
	if ctx.Err() == nil {
		t.Fatal(err)
	}
	return found
}

// TestSlowWritersAreNeverPublishedShort runs writers that take five seconds
// and more, in a real sandbox, and looks at every version that was published.
func TestSlowWritersAreNeverPublishedShort(t *testing.T) {
	d := daemontest.Start(t)
	put(t, d, "hallway.avi")
	writers := map[string]string{
		"held.bin":     `exec 5>/outputs/held.bin; for i in 1 2 3 4 5 6; do echo piece $i >&5; sleep 1; done`,
		"reopened.txt": `for i in 1 2 3 4 5 6; do echo piece $i >>/outputs/reopened.txt; sleep 1; done`,
		"inplace.mp4":  `ffmpeg -v error -re -i /inputs/hallway.avi -c:v libx264 -preset ultrafast -pix_fmt yuv420p -movflags +faststart /outputs/inplace.mp4`,
		"renamed.bin":  `for i in 1 2 3 4 5 6; do echo piece $i >>/outputs/renamed.bin.part; sleep 1; done; mv /outputs/renamed.bin.part /outputs/renamed.bin`,
		"mapped.bin": `python3 -c '
import mmap, os, time
f = os.open("/outputs/mapped.bin", os.O_RDWR | os.O_CREAT)
os.ftruncate(f, 65536)
m = mmap.mmap(f, 65536)
os.close(f)
for i in range(6):
    m[i * 100:i * 100 + 5] = b"piece"
    time.sleep(1)
m.flush()
'`,
	}
	var ids []string
	for _, line := range writers {
		cmd, err := d.Client.Start(t.Context(), api.DefaultChat, api.NewCommand{Shell: line})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, cmd.ID)
	}
	for _, id := range ids {
		cmd, err := d.Wait(t.Context(), api.DefaultChat, id)
		if err != nil {
			t.Fatal(err)
		}
		succeeded(t, d, cmd)
	}
	sums, _ := d.Printed(succeeded(t, d, d.Shell("cd /outputs && sha256sum *")))
	versions := published(t, d)
	for name := range writers {
		cells := versions[name]
		if len(cells) != 1 {
			t.Errorf("%s was published %d times: %+v", name, len(cells), cells)
			continue
		}
		if !strings.Contains(sums, cells[0].File.SHA256+"  "+name) {
			t.Errorf("%s: what was published is not the final file", name)
		}
		data := content(t, d, cells[0].Ordinal)
		if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != cells[0].File.SHA256 || int64(len(data)) != cells[0].File.Size {
			t.Errorf("%s: the store has something else", name)
		}
	}
	if len(versions) != len(writers) {
		t.Errorf("published: %d files, want %d", len(versions), len(writers))
	}
}

func TestCellsAppearWhileTheCommandRuns(t *testing.T) {
	d := daemontest.Start(t)
	cmd, err := d.Client.Start(t.Context(), api.DefaultChat, api.NewCommand{Shell: "echo done >/outputs/early.txt; sleep 300"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err = d.Events(ctx, api.DefaultChat, 0, func(ev api.Event) error {
		if ev.Type == api.EventCellPublished {
			cancel()
		}
		if ev.Command != nil && ev.Command.State.Ended() {
			t.Error("the command ended first")
			cancel()
		}
		return nil
	})
	if ctx.Err() == nil {
		t.Fatal(err)
	}
	if err := d.Client.Kill(t.Context(), api.DefaultChat, cmd.ID, 0); err != nil {
		t.Fatal(err)
	}
}

func TestChangedFileIsARevision(t *testing.T) {
	d := daemontest.Start(t)
	succeeded(t, d, d.Shell("echo one >/outputs/note.txt; echo other >/outputs/other.txt"))
	succeeded(t, d, d.Shell("echo two >/outputs/note.txt"))
	cells, err := d.Cells(t.Context(), api.DefaultChat)
	if err != nil {
		t.Fatal(err)
	}
	if len(cells) != 2 || cells[0].File.Name != "note.txt" || cells[0].Revision != 2 || cells[1].Revision != 1 {
		t.Fatalf("cells: %+v", cells)
	}
	if got := string(content(t, d, 1)); got != "two\n" {
		t.Errorf("the revision holds %q", got)
	}
	if cells[0].Pill != api.PillFile {
		t.Errorf("a text's pill is %s", cells[0].Pill)
	}
}

// TestHostileOutputs makes what must not be published. Named pipes and sockets
// exist only inside the guest, and devices can't be made; that they would be
// skipped is tested on the host's own files in the uploader.
func TestHostileOutputs(t *testing.T) {
	d := daemontest.Start(t)
	cmd := succeeded(t, d, d.Shell(`cd /outputs
ln -s /etc/shadow link; ln -s /etc dir; mkfifo fifo; mknod null c 1 3
echo twice >hard; ln hard harder
python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("/outputs/sock")'
mkdir -p a/b/c && echo deep >a/b/c/deep.txt
printf x >"$(printf 'new\nline')"; printf x >"$(printf 'bad\377utf8')"; printf x >'<script>.txt'
echo GIF89a >lie.png; : >empty; printf x >.hidden; printf x >work.tmp
`))
	names := make(map[string]api.Cell)
	for _, c := range cmd.Cells {
		names[c.File.Path] = c
	}
	for _, want := range []string{"a/b/c/deep.txt", "new%0Aline", "bad%FFutf8", "<script>.txt", "lie.png", "empty"} {
		if _, ok := names[want]; !ok {
			t.Errorf("%s was not published", want)
		}
		delete(names, want)
	}
	for name := range names {
		t.Errorf("%s was published", name)
	}
	var skipped []string
	for _, s := range cmd.Skipped {
		skipped = append(skipped, s.Path+" "+s.Reason)
	}
	all := strings.Join(skipped, "\n")
	for _, want := range []string{"link is a symbolic link", "dir is a symbolic link", "hard has more than one name"} {
		if !strings.Contains(all, want) {
			t.Errorf("nothing says that %s:\n%s", want, all)
		}
	}
	if again := succeeded(t, d, d.Shell("true")).Skipped; len(again) > 0 {
		t.Errorf("the next command tells again of %+v", again)
	}
	if changed := succeeded(t, d, d.Shell("ln -sf /etc/passwd /outputs/link")).Skipped; len(changed) != 1 {
		t.Errorf("a changed link is told as %+v", changed)
	}
}

func TestAFileThatLiesBecomesAFileCell(t *testing.T) {
	d := daemontest.Start(t)
	cmd := succeeded(t, d, d.Shell(`printf '\211PNG\r\n\032\n\000\000\000\rIHDR broken' >/outputs/broken.png`))
	if len(cmd.Cells) != 1 || cmd.Cells[0].Pill != api.PillFile || cmd.Cells[0].Note == "" {
		t.Errorf("cells: %+v", cmd.Cells)
	}
}

func TestManyFilesAtOnce(t *testing.T) {
	d := daemontest.Start(t, func(c *config.Config) { c.Limits.Output = 1 << 20 })
	cmd := succeeded(t, d, d.Shell(`cd /outputs; i=1; while [ $i -le 300 ]; do echo $i >frame-$i.txt; i=$((i+1)); done`))
	if len(cmd.Cells) != 300 {
		t.Fatalf("%d cells", len(cmd.Cells))
	}
	seen := make(map[int]bool)
	for _, c := range cmd.Cells {
		seen[c.Ordinal] = true
	}
	if len(seen) != 300 || !seen[1] || !seen[300] {
		t.Error("ordinals are not 1 to 300")
	}
}
