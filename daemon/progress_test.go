package daemon_test

import (
	"context"
	"testing"
	"time"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/daemontest"
)

// TestProgress looks at what a chat is told of a long encoding, and of a script's
// own report.
func TestProgress(t *testing.T) {
	d := daemontest.Start(t)
	d.Shell("ffmpeg -v error -f lavfi -i testsrc2=s=1280x720:d=6:r=30 a.mp4")
	end := d.Shell(`ffmpeg -i a.mp4 -preset veryslow -y b.mp4
echo '@progress {"percent": 99.5, "stage": "last"}'`)
	if end.State != api.StateSucceeded || end.Progress != nil {
		t.Fatalf("%+v", end)
	}
	told := progressOf(t, d, end)
	if len(told) < 2 {
		t.Fatalf("it was told %+v", told)
	}
	last := 0.0
	for _, p := range told {
		if p.Command != end.ID || p.Percent == nil || *p.Percent < last {
			t.Errorf("it was told %+v after %v %%", p, last)
			continue
		}
		last = *p.Percent
	}
	if first := told[0]; first.By != api.ProgressByFFmpeg || first.Frame == 0 || first.FPS == 0 {
		t.Errorf("it was told first %+v", first)
	}
	if last := told[len(told)-1]; last.By != api.ProgressByScript || *last.Percent != 99.5 || last.Stage != "last" {
		t.Errorf("it was told last %+v", last)
	}
}

// progressOf is what the chat was told of a command that has ended.
func progressOf(t *testing.T, d *daemontest.Daemon, end api.Command) (told []api.CommandProgress) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	err := d.Events(ctx, api.DefaultChat, 0, func(ev api.Event) error {
		if ev.Type == api.EventCommandProgress {
			told = append(told, *ev.Work)
		}
		if ev.Command != nil && ev.Command.ID == end.ID && ev.Command.State.Ended() {
			cancel()
		}
		return nil
	})
	if ctx.Err() == nil || t.Context().Err() != nil {
		t.Fatal(err)
	}
	return told
}

// TestHyperFramesProgress looks at what a chat is told of a render, by HyperFrames
// itself and by mediakit over it.
func TestHyperFramesProgress(t *testing.T) {
	d := daemontest.Start(t)
	const compose = `from mediakit import graphics
graphics.compose("title", "/workspace/title", (320, 180), 1, text="Ada")
`
	for name, cmd := range map[string]api.NewCommand{
		"mediakit": {Python: compose + `graphics.hyperframes("/workspace/title", graphics.Path("/workspace/a.mp4"))`},
		"itself":   {Python: compose + `import subprocess; subprocess.run("hyperframes render /workspace/title -o /workspace/b.mp4 -w 1 --no-browser-gpu", shell=True, check=True)`},
	} {
		end := d.Finish(cmd)
		if end.State != api.StateSucceeded {
			_, said := d.Printed(end)
			t.Fatalf("%s: %s (%s): %s", name, end.State, end.Reason, said)
		}
		told := progressOf(t, d, end)
		if len(told) == 0 || told[0].By != api.ProgressByHyperFrames || told[0].Percent == nil {
			t.Errorf("%s: it was told %+v", name, told)
		}
	}
}
