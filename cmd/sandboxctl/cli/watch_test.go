package cli

import (
	"bytes"
	"encoding/base64"
	"image/png"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/creack/pty"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/daemontest"
	"mediasandbox/internal/testenv"
)

// TestWatchDrawsCells watches a chat on a terminal that shows pictures.
func TestWatchDrawsCells(t *testing.T) {
	d := daemontest.Start(t)
	d.Shell("magick -size 400x300 xc:tomato /outputs/red.png")
	for how, draws := range map[string]*regexp.Regexp{
		"kitty": regexp.MustCompile(`(?s)\x1b_Ga=T,f=100,r=8,m=0;([A-Za-z0-9+/=]+)\x1b\\`),
		"iterm": regexp.MustCompile(`\x1b]1337;File=inline=1;size=\d+;height=8:([A-Za-z0-9+/=]+)\a`),
		"none":  nil,
	} {
		cmd := exec.Command(testenv.Bin(t, "sandboxctl"), "watch", "--after", "0", "--pictures", how)
		cmd.Env = []string{"TERM=xterm", api.SocketEnv + "=" + d.Socket()}
		terminal, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 40, Cols: 160})
		if err != nil {
			t.Fatal(err)
		}
		until := draws
		if until == nil {
			until = regexp.MustCompile(`red\.png  published  400×300`)
		}
		shown, buf := "", make([]byte, 64<<10)
		for !until.MatchString(shown) {
			n, err := terminal.Read(buf)
			if shown += string(buf[:n]); err != nil {
				t.Fatalf("%s: %v\n%q", how, err, shown)
			}
		}
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: interrupted, it ends with %v", how, err)
		}
		terminal.Close()
		if draws == nil {
			if strings.Contains(shown, "\x1b_G") {
				t.Errorf("it draws although it is to draw none: %q", shown)
			}
			continue
		}
		body, err := base64.StdEncoding.DecodeString(draws.FindStringSubmatch(shown)[1])
		if err != nil {
			t.Fatal(err)
		}
		img, err := png.Decode(bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if r, g, _, _ := img.At(img.Bounds().Dx()/2, img.Bounds().Dy()/2).RGBA(); r>>8 < 225 || g>>8 > 120 {
			t.Errorf("%s: its middle is %d,%d", how, r>>8, g>>8)
		}
	}
}

// TestTop looks at a sandbox that works.
func TestTop(t *testing.T) {
	d := daemontest.Start(t)
	d.Shell("head -c 3000000 /dev/urandom >x")
	shown := onTerminal(t, d, nil, "top", "--once")
	for _, want := range []string{"CHAT", "default", "rests, ends in", "MiB of 1.0 GiB"} {
		if !strings.Contains(shown, want) {
			t.Errorf("it shows no %q:\n%s", want, shown)
		}
	}
	list, err := d.Sandboxes(t.Context(), true)
	if err != nil || len(list) != 1 || !list[0].Accounted || list[0].Memory < 20<<20 || list[0].CPU <= 0 || list[0].Processes < 5 || list[0].Disk == 0 {
		t.Errorf("%+v, %v", list, err)
	}
}
