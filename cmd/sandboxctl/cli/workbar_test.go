package cli

import (
	"strings"
	"testing"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/daemontest"
	"mediasandbox/daemon/progress"
)

// TestTerminalShowsWork runs ffmpeg on a terminal: its progress shows as a bar,
// and what else it prints stays.
func TestTerminalShowsWork(t *testing.T) {
	d := daemontest.Start(t)
	d.Shell("ffmpeg -v error -f lavfi -i testsrc2=s=640x360:d=6:r=30 a.mp4")
	shown := onTerminal(t, d, nil, "run", "--", "sh", "-c", `echo begun; ffmpeg -stats_period 0.1 -i a.mp4 -preset slow -y /outputs/b.mp4; echo over`)
	for _, want := range []string{"begun", "Stream #0:0", "over", "b.mp4", "frame ", "% |", " left"} {
		if !strings.Contains(shown, want) {
			t.Errorf("it shows no %q:\n%q", want, shown)
		}
	}
	if strings.Contains(shown, "time=00:00:03") {
		t.Errorf("the statistics show beside the bar:\n%q", shown)
	}
}

// TestWorkBarLeavesOutput gives the bar output in pieces of every size: all that
// is no report comes out again, in order.
func TestWorkBarLeavesOutput(t *testing.T) {
	const in = "one\n@progress {\"percent\":1}\nName: @at\nframe=1 time=00:00:01\rframe=2\nsize=x\r@prog\r\nend"
	const want = "one\nName: @at\nframe=2\n@prog\r\nend"
	for size := 1; size <= len(in); size++ {
		b := &workBar{reader: progress.New(nil), held: map[string][]byte{}, within: map[string]bool{}, terminal: new(strings.Builder)}
		var out strings.Builder
		for at := 0; at < len(in); at += size {
			piece := []byte(in[at:min(at+size, len(in))])
			if err := b.pass(api.OutputChunk{Stream: "stdout", Offset: int64(at), Data: piece}, &out); err != nil {
				t.Fatal(err)
			}
		}
		out.Write(b.held["stdout"])
		if out.String() != want {
			t.Fatalf("in pieces of %d bytes %q came out", size, out.String())
		}
	}
}
