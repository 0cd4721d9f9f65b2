package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/client"
	"mediasandbox/daemon/config"
)

// daemon is a sandboxd in a process and a directory of its own.
type daemon struct {
	*client.Client
	b      *bench
	dir    string
	cfg    config.Config
	cmd    *exec.Cmd
	ended  chan error
	nextID int
	chats  int
}

const (
	answerTimeout = 60 * time.Second
	// stopTimeout is long because many sandboxes are removed one by one.
	stopTimeout = 5 * time.Minute
	// spare is how many sandboxes more than the idle chats' there may be.
	spare = 64
	// benchIdleLife keeps chats while other rows are measured.
	benchIdleLife = time.Hour
)

// startDaemon starts a sandboxd with the default limits but for change. It is
// stopped, with its sandboxes, at the end of the run at the latest.
func (b *bench) startDaemon(name string, change func(*config.Limits)) (*daemon, error) {
	return b.startConfigured(name, func(c *config.Config) {
		if change != nil {
			change(&c.Limits)
		}
	})
}

// startConfigured is startDaemon for a change of anything.
func (b *bench) startConfigured(name string, change func(*config.Config)) (*daemon, error) {
	d := &daemon{b: b, dir: filepath.Join(b.dir, name)}
	if err := os.MkdirAll(d.dir, 0o700); err != nil {
		return nil, fmt.Errorf("start a daemon: %w", err)
	}
	d.cfg = config.Default()
	d.cfg.Paths = config.Paths{
		StateDir: filepath.Join(d.dir, "state"), RunDir: filepath.Join(d.dir, "run"), Socket: filepath.Join(d.dir, "api.sock"),
		Image: b.image.Path, LibexecDir: b.bin,
	}
	d.cfg.Limits.IdleLife = config.Duration(benchIdleLife)
	// One account makes all the idle chats.
	d.cfg.Limits.Sandboxes, d.cfg.Limits.AccountSandboxes = b.chats+spare, b.chats+spare
	change(&d.cfg)
	if err := os.WriteFile(filepath.Join(d.dir, "config.toml"), d.cfg.TOML(), 0o600); err != nil {
		return nil, fmt.Errorf("start a daemon: %w", err)
	}
	d.Client = client.New(d.cfg.Paths.Socket, "")
	b.defers(d.stop)
	return d, d.launch(b.ctx)
}

// launch starts the program and waits until it answers.
func (d *daemon) launch(ctx context.Context) error {
	log, err := os.OpenFile(filepath.Join(d.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("start a daemon: %w", err)
	}
	defer log.Close()
	d.cmd = exec.Command(filepath.Join(d.b.bin, "sandboxd"), "serve", "--config", filepath.Join(d.dir, "config.toml"), "--ephemeral", "--debug")
	d.cmd.Stderr = log
	// The terminal's Ctrl-C is for this program, which then stops the daemon.
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := d.cmd.Start(); err != nil {
		return fmt.Errorf("start a daemon (make build builds it): %w", err)
	}
	d.ended = make(chan error, 1)
	go func(cmd *exec.Cmd, ended chan<- error) { ended <- cmd.Wait() }(d.cmd, d.ended)
	return d.poll(ctx, answerTimeout, "sandboxd does not answer", func() (bool, error) {
		_, err := d.Info(ctx)
		return err == nil, nil
	})
}

// poll asks until the answer is yes; it also ends when the daemon does.
func (d *daemon) poll(ctx context.Context, most time.Duration, what string, ask func() (bool, error)) error {
	deadline := time.Now().Add(most)
	for {
		if ok, err := ask(); err != nil || ok {
			return err
		}
		select {
		case err := <-d.ended:
			d.ended <- err
			return fmt.Errorf("%s: it ended (%v): %s", what, err, d.said())
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s within %s: %s", what, most, d.said())
		}
	}
}

// said is the end of the daemon's log.
func (d *daemon) said() string {
	text, err := os.ReadFile(filepath.Join(d.dir, "log"))
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(text[max(0, len(text)-2000):]))
}

// stop ends the daemon with its sandboxes. After one that did not end well
// another is started and ended, since only a daemon removes what a daemon left.
func (d *daemon) stop() error {
	if d.cmd == nil || d.cmd.Process == nil {
		return nil
	}
	err := d.end()
	if err != nil {
		again := d.launch(context.Background())
		if again == nil {
			again = d.end()
		}
		err = errors.Join(err, again)
	}
	d.cmd = nil
	return err
}

// end asks the daemon to end, and waits.
func (d *daemon) end() error {
	// One that has ended already can't be asked; ended says how it went.
	asked := d.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-d.ended:
		if err != nil || asked != nil {
			return fmt.Errorf("sandboxd ended with %v (asked to end: %v): %s", err, asked, d.said())
		}
		return nil
	case <-time.After(stopTimeout):
		err := errors.Join(fmt.Errorf("sandboxd did not end within %s: %s", stopTimeout, d.said()), d.cmd.Process.Kill())
		<-d.ended
		return err
	}
}

// newChat makes a chat and runs its first command to the end.
func (d *daemon) newChat(ctx context.Context, req api.NewCommand) (string, error) {
	d.nextID++
	id := "bench-" + strconv.Itoa(d.nextID)
	return id, d.createAndRun(ctx, id, req)
}

// createAndRun is what a caller does who starts from nothing.
func (d *daemon) createAndRun(ctx context.Context, chat string, req api.NewCommand) error {
	if _, err := d.CreateChat(ctx, api.NewChat{ID: chat}); err != nil {
		return err
	}
	d.chats++
	_, err := d.finish(ctx, chat, req)
	return err
}

// drop removes a chat with its sandbox.
func (d *daemon) drop(ctx context.Context, chat string) error {
	d.chats--
	return d.DeleteChat(ctx, chat)
}

// finish runs a command to its end, which must be a good one.
func (d *daemon) finish(ctx context.Context, chat string, req api.NewCommand) (api.Command, error) {
	cmd, err := d.Start(ctx, chat, req)
	if err == nil {
		cmd, err = d.Wait(ctx, chat, cmd.ID)
	}
	if err != nil {
		return cmd, err
	}
	if cmd.State != api.StateSucceeded {
		_, errs, _ := d.printed(ctx, cmd)
		return cmd, fmt.Errorf("command %s ended as %s (%s): %s", cmd.ID, cmd.State, cmd.Reason, errs)
	}
	return cmd, nil
}

// printed returns what a command printed.
func (d *daemon) printed(ctx context.Context, cmd api.Command) (stdout, stderr string, err error) {
	var out, errs strings.Builder
	_, err = d.Output(ctx, cmd.Chat, cmd.ID, false, func(c api.OutputChunk) error {
		if c.Stream == "stderr" {
			errs.Write(c.Data)
		} else {
			out.Write(c.Data)
		}
		return nil
	})
	return out.String(), errs.String(), err
}
