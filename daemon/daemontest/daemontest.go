// Package daemontest runs whole daemons for tests, over real sandboxes: in the
// test's process (Start), or as the built program that a test may kill (Spawn).
// At a test's end nothing of them may be left on the host.
package daemontest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"mediasandbox/daemon"
	"mediasandbox/daemon/api"
	"mediasandbox/daemon/client"
	"mediasandbox/daemon/config"
	"mediasandbox/daemon/store"
	"mediasandbox/internal/testenv"
	"mediasandbox/runtime/runsc"
)

// Daemon is a running daemon of a test.
type Daemon struct {
	*client.Client
	// Dir holds its state, its run directory and its socket.
	Dir    string
	Config config.Config

	t    testing.TB
	stop func()
}

// Option changes the configuration of a test's daemon.
type Option func(*config.Config)

// newDaemon lays out a daemon's directory and checks it at the test's end.
func newDaemon(t testing.TB, options []Option) *Daemon {
	t.Helper()
	d := &Daemon{t: t, Dir: testenv.Dir(t)}
	cfg := config.Default()
	cfg.Paths = config.Paths{
		StateDir: filepath.Join(d.Dir, "state"), RunDir: filepath.Join(d.Dir, "run"), Socket: filepath.Join(d.Dir, "api.sock"),
		Image: testenv.Image(t).Path, LibexecDir: testenv.Bin(t, ""),
	}
	cfg.Limits.Memory, cfg.Limits.Pool = 1<<30, 0
	for _, o := range options {
		o(&cfg)
	}
	d.Config = cfg
	d.Client = client.New(cfg.Paths.Socket, "")
	t.Cleanup(func() {
		d.Stop()
		d.checkState()
		if left := d.Leftovers(); len(left) > 0 {
			t.Errorf("left on the host:\n%s", strings.Join(left, "\n"))
		}
	})
	return d
}

// Leftovers names what of the daemon and its sandboxes is on the host.
func (d *Daemon) Leftovers() []string {
	d.t.Helper()
	return testenv.Leftovers(d.t, d.Dir, runsc.CgroupParent(filepath.Join(d.Config.Paths.RunDir, "runsc")))
}

// checkState looks into the database of a daemon that has ended.
func (d *Daemon) checkState() {
	st, err := store.Open(filepath.Join(d.Config.Paths.StateDir, "state.db"))
	if err != nil {
		d.t.Error(err)
		return
	}
	if err := errors.Join(st.Check(), st.Close()); err != nil {
		d.t.Errorf("the state is inconsistent: %v", err)
	}
}

// Start runs a daemon in the test's process. It removes its sandboxes at the
// test's end.
func Start(t testing.TB, options ...Option) *Daemon {
	t.Helper()
	d := newDaemon(t, options)
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	ctx, cancel := context.WithCancel(context.Background())
	dm, err := daemon.New(ctx, d.Config, true, log)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- errors.Join(dm.Run(ctx), dm.Close()) }()
	d.stop = func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	return d
}

// Stop ends the daemon if it runs.
func (d *Daemon) Stop() {
	if d.stop != nil {
		d.stop()
		d.stop = nil
	}
}

// Process is a daemon in a process of its own.
type Process struct {
	*Daemon
	cmd *exec.Cmd
}

// Spawn runs the built sandboxd. At the test's end a last, ephemeral one
// removes what the others left.
func Spawn(t testing.TB, options ...Option) *Process {
	t.Helper()
	p := &Process{Daemon: newDaemon(t, options)}
	t.Cleanup(func() { // before newDaemon's
		defer func() {
			if t.Failed() {
				t.Logf("the daemons said:\n%s", p.Log())
			}
		}()
		if p.cmd != nil {
			p.Kill()
		}
		p.launch(true)
		if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
			t.Error(err)
		}
		if err := p.cmd.Wait(); err != nil {
			t.Errorf("sandboxd ended with %v", err)
		}
	})
	p.launch(false)
	return p
}

// launch starts sandboxd and waits until it answers.
func (p *Process) launch(ephemeral bool) {
	p.t.Helper()
	path := filepath.Join(p.Dir, "config.toml")
	if err := os.WriteFile(path, p.Config.TOML(), 0o600); err != nil {
		p.t.Fatal(err)
	}
	args := []string{"serve", "--config", path}
	if ephemeral {
		args = append(args, "--ephemeral")
	}
	log, err := os.OpenFile(filepath.Join(p.Dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		p.t.Fatal(err)
	}
	defer log.Close()
	p.cmd = exec.Command(testenv.Bin(p.t, "sandboxd"), args...)
	p.cmd.Stderr = log
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	deadline := time.Now().Add(60 * time.Second)
	for {
		if _, err := p.Info(context.Background()); err == nil {
			return
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("sandboxd does not answer:\n%s", p.Log())
		}
		<-time.After(20 * time.Millisecond)
	}
}

// Log is what the daemons of the test have logged.
func (p *Process) Log() string {
	text, err := os.ReadFile(filepath.Join(p.Dir, "log"))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Kill ends the daemon as a crash would.
func (p *Process) Kill() {
	p.t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		p.t.Fatal(err)
	}
	if err := p.cmd.Wait(); err == nil {
		p.t.Error("a killed daemon ended well")
	}
	p.cmd = nil
}

// PeakMemory is the most that the daemon has had resident, in bytes.
func (p *Process) PeakMemory() int64 {
	p.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		p.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "\nVmHWM:")
	var kib int64
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		p.t.Fatal(err)
	}
	return kib << 10
}

// Again starts the next daemon over the same state.
func (p *Process) Again() {
	p.t.Helper()
	p.launch(false)
}

// SandboxID names the live sandbox of the default chat.
func (d *Daemon) SandboxID() string {
	d.t.Helper()
	chat, err := d.Client.Chat(context.Background(), api.DefaultChat)
	if err != nil || chat.Sandbox == nil {
		d.t.Fatalf("the default chat has no sandbox: %v", err)
	}
	return chat.Sandbox.ID
}

// Shell runs a shell line in the default chat to its end.
func (d *Daemon) Shell(line string) api.Command {
	d.t.Helper()
	return d.Finish(api.NewCommand{Shell: line})
}

// Finish runs a command in the default chat to its end.
func (d *Daemon) Finish(req api.NewCommand) api.Command {
	d.t.Helper()
	ctx := context.Background()
	cmd, err := d.Client.Start(ctx, api.DefaultChat, req)
	if err == nil {
		cmd, err = d.Wait(ctx, api.DefaultChat, cmd.ID)
	}
	if err != nil {
		d.t.Fatal(err)
	}
	return cmd
}

// Printed returns all that a command has printed.
func (d *Daemon) Printed(cmd api.Command) (stdout, stderr string) {
	d.t.Helper()
	var out, errs strings.Builder
	_, err := d.Client.Output(context.Background(), cmd.Chat, cmd.ID, false, func(c api.OutputChunk) error {
		if c.Stream == "stderr" {
			errs.Write(c.Data)
		} else {
			out.Write(c.Data)
		}
		return nil
	})
	if err != nil {
		d.t.Fatal(err)
	}
	return out.String(), errs.String()
}
