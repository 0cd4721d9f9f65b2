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
	var told []api.CommandProgress
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
