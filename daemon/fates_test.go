package daemon_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/config"
	"mediasandbox/daemon/daemontest"
)

func TestFates(t *testing.T) {
	d := daemontest.Start(t, func(c *config.Config) { c.Limits.Memory = 400 << 20 })
	for name, tt := range map[string]struct {
		req    api.NewCommand
		state  api.State
		code   int // -1: none
		reason string
	}{
		"succeeds":  {api.NewCommand{Argv: []string{"true"}}, api.StateSucceeded, 0, ""},
		"fails":     {api.NewCommand{Shell: "exit 7"}, api.StateFailed, 7, "exit code 7"},
		"signal":    {api.NewCommand{Shell: "kill -TERM $$"}, api.StateFailed, -1, "signal 15"},
		"times out": {api.NewCommand{Shell: "sleep 100", Timeout: 0.5}, api.StateTimedOut, -1, "0.5 s"},
		"no such":   {api.NewCommand{Argv: []string{"nowhere"}}, api.StateFailed, 127, "exit code 127"},
		"no dir":    {api.NewCommand{Argv: []string{"true"}, Dir: "/nowhere"}, api.StateFailed, 126, "exit code 126"},
		"traceback": {api.NewCommand{Python: "import sys\nprint(sys.argv[1:])\nraise SystemExit(4)", Args: []string{"a", "b c"}}, api.StateFailed, 4, ""},
	} {
		cmd := d.Finish(tt.req)
		if cmd.State != tt.state || !strings.Contains(cmd.Reason, tt.reason) {
			t.Errorf("%s: %s (%s), want %s (%s)", name, cmd.State, cmd.Reason, tt.state, tt.reason)
		}
		if got := exitCode(cmd); got != tt.code {
			t.Errorf("%s: exit code %d, want %d", name, got, tt.code)
		}
		if cmd.StartedAt == nil || cmd.EndedAt == nil || cmd.EndedAt.Before(*cmd.StartedAt) || cmd.Image == "" {
			t.Errorf("%s: the record is %+v", name, cmd)
		}
	}
	t.Run("out of memory", func(t *testing.T) {
		cmd := d.Finish(api.NewCommand{Python: "b=[]\nwhile True: b.append(b'x'*10_000_000)"})
		if cmd.State != api.StateOOMKilled || !strings.Contains(cmd.Reason, "400 MiB") {
			t.Errorf("%s (%s)", cmd.State, cmd.Reason)
		}
		after := succeeded(t, d, d.Shell("true"))
		if !after.FilesLost {
			t.Error("the next command does not say that files were lost")
		}
	})
	t.Run("kills its init", func(t *testing.T) {
		cmd := d.Shell("kill -9 1; sleep 10")
		if cmd.State != api.StateLost || cmd.Reason == "" {
			t.Errorf("%s (%s)", cmd.State, cmd.Reason)
		}
		if after := succeeded(t, d, d.Shell("true")); !after.FilesLost {
			t.Error("the next command does not say that files were lost")
		}
	})
}

func exitCode(c api.Command) int {
	if c.ExitCode == nil {
		return -1
	}
	return *c.ExitCode
}

func TestCancel(t *testing.T) {
	d := daemontest.Start(t)
	cmd, err := d.Client.Start(t.Context(), api.DefaultChat, api.NewCommand{Shell: "echo up; setsid sleep 456 & sleep 456"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err = d.Client.Output(ctx, api.DefaultChat, cmd.ID, true, func(c api.OutputChunk) error {
		if string(c.Data) != "up\n" {
			t.Errorf("printed %q", c.Data)
		}
		cancel()
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if err := d.Client.Kill(t.Context(), api.DefaultChat, cmd.ID, 0); err != nil {
		t.Fatal(err)
	}
	if cmd, err = d.Wait(t.Context(), api.DefaultChat, cmd.ID); err != nil || cmd.State != api.StateCanceled {
		t.Errorf("%s, %v", cmd.State, err)
	}
	if out, _ := d.Printed(d.Shell("ps ax")); strings.Contains(out, "sleep 456") {
		t.Errorf("it left processes:\n%s", out)
	}
	var ended *api.Error
	if err := d.Client.Kill(t.Context(), api.DefaultChat, cmd.ID, 0); !errors.As(err, &ended) || ended.Code != api.CodeCommandEnded {
		t.Errorf("killing it again: %v", err)
	}
}

func TestIdleSandboxIsRemoved(t *testing.T) {
	d := daemontest.Start(t, func(c *config.Config) { c.Limits.IdleLife = config.Duration(time.Second) })
	succeeded(t, d, d.Shell("echo kept >/outputs/cell.txt; echo gone >/workspace/file"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err := d.Events(ctx, api.DefaultChat, 0, func(ev api.Event) error {
		if ev.Type == api.EventSandboxEnded {
			cancel()
			if !strings.Contains(ev.Message, "idle") {
				t.Errorf("it ended because %s", ev.Message)
			}
		}
		return nil
	})
	if ctx.Err() == nil {
		t.Fatal(err)
	}
	if got := string(content(t, d, 1)); got != "kept\n" {
		t.Errorf("the cell holds %q", got)
	}
	cmd := d.Shell("cat /workspace/file")
	if cmd.State != api.StateFailed || !cmd.FilesLost {
		t.Errorf("%+v", cmd)
	}
}

func TestFloodIsBoundedAndCounted(t *testing.T) {
	d := daemontest.Start(t, func(c *config.Config) { c.Limits.Output = 1 << 20 })
	cmd := succeeded(t, d, d.Shell("head -c 5000000 /dev/zero; echo end; echo complaint >&2"))
	if cmd.Stdout.Bytes != 5000004 || !cmd.Stdout.Truncated || cmd.Stdout.Dropped != 5000004-1<<20 {
		t.Errorf("stdout: %+v", cmd.Stdout)
	}
	out, errs := d.Printed(cmd)
	if len(out) != 1<<20 || !strings.HasSuffix(out, "end\n") || errs != "complaint\n" {
		t.Errorf("kept %d bytes and %q", len(out), errs)
	}
}
