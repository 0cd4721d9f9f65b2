package daemon_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/config"
	"mediasandbox/daemon/daemontest"
)

// sequences is how many random chats TestModel plays; MEDIA_SANDBOX_SEQUENCES
// asks for more.
const sequences = 200

// TestModel plays random sequences of what callers do, while the daemon is
// killed and started again all the time, and compares every answer with a
// simple model.
func TestModel(t *testing.T) {
	n := sequences
	if s := os.Getenv("MEDIA_SANDBOX_SEQUENCES"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	p := daemontest.Spawn(t, func(c *config.Config) {
		c.Limits.Memory, c.Limits.Pool, c.Limits.WarmPython = 512<<20, 2, false
	})
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	ctx, cancel := context.WithCancel(t.Context())
	killed := make(chan int)
	go func() {
		n := 0
		defer func() { killed <- n }() // also if a daemon does not come back
		killAgainAndAgain(ctx, p, &n)
	}()
	const players = 4
	var all sync.WaitGroup
	next := make(chan int)
	for range players {
		all.Go(func() {
			for i := range next {
				newPlayer(t, p.Daemon, seed, i).play()
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	all.Wait()
	cancel()
	t.Logf("%d sequences, the daemon was killed %d times", n, <-killed)
}

// killAgainAndAgain crashes the daemon every few seconds.
func killAgainAndAgain(ctx context.Context, p *daemontest.Process, n *int) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Duration(1500+rand.IntN(2500)) * time.Millisecond):
		}
		p.Kill()
		p.Again()
		*n++
	}
}

// player plays one chat and knows what it should look like.
type player struct {
	t    *testing.T
	d    *daemontest.Daemon
	r    *rand.Rand
	chat string
	ops  int

	// files are those of /workspace.
	files map[string]string
	// outputs maps a path to its cell, contents to each cell's bytes.
	outputs   map[string]int
	contents  map[int]string
	revisions map[int]int
	hadBox    bool
	lostBox   bool
}

func newPlayer(t *testing.T, d *daemontest.Daemon, seed uint64, i int) *player {
	return &player{
		t: t, d: d, r: rand.New(rand.NewPCG(seed, uint64(i))), chat: fmt.Sprintf("play-%d", i),
		files: map[string]string{}, outputs: map[string]int{}, contents: map[int]string{}, revisions: map[int]int{},
	}
}

func (p *player) fail(format string, args ...any) {
	p.t.Errorf("%s after %d steps: %s", p.chat, p.ops, fmt.Sprintf(format, args...))
}

// again repeats a call while the daemon is away.
func again[T any](p *player, what string, call func() (T, error)) (T, error) {
	deadline := time.Now().Add(2 * time.Minute)
	for {
		v, err := call()
		var known *api.Error
		if err == nil || (errors.As(err, &known) && !known.Retryable && known.Code != api.CodeInternal) {
			return v, err
		}
		if time.Now().After(deadline) {
			p.fail("%s: %v", what, err)
			return v, err
		}
		<-time.After(20 * time.Millisecond)
	}
}

// play makes a handful of random steps and then deletes the chat.
func (p *player) play() {
	ctx := p.t.Context()
	if _, err := again(p, "create", func() (api.Chat, error) { return p.d.CreateChat(ctx, api.NewChat{ID: p.chat}) }); err != nil {
		p.fail("create: %v", err)
		return
	}
	steps := []func(){p.put, p.read, p.output, p.output, p.exit, p.cancel, p.signal, p.timeout, p.suicide}
	for range 3 + p.r.IntN(4) {
		if p.t.Failed() {
			break
		}
		p.ops++
		steps[p.r.IntN(len(steps))]()
	}
	p.compareCells()
	if _, err := again(p, "delete", func() (struct{}, error) { return struct{}{}, p.d.DeleteChat(ctx, p.chat) }); err != nil && code(err) != api.CodeChatNotFound {
		p.fail("delete: %v", err)
	}
}

// start begins a command exactly once, whatever happens to the daemon.
func (p *player) start(req api.NewCommand) api.Command {
	p.ops++
	key := fmt.Sprintf("%s-%d", p.chat, p.ops)
	c, err := again(p, "start", func() (api.Command, error) { return p.d.StartOnce(p.t.Context(), p.chat, key, req) })
	if err != nil {
		p.fail("start %q: %v", req.Shell, err)
	}
	return c
}

// finish waits for a command and checks how it ended.
func (p *player) finish(c api.Command, state api.State) api.Command {
	got, err := again(p, "wait", func() (api.Command, error) {
		c, err := p.d.Wait(p.t.Context(), p.chat, c.ID)
		if err == nil && !c.State.Ended() {
			err = errors.New("it still runs")
		}
		return c, err
	})
	if err != nil || got.State != state {
		// A daemon that died between recording a command and starting it says
		// so; then nothing of it happened.
		if got.State == api.StateLost && strings.Contains(got.Reason, "before it was started") {
			p.lostBox = p.lostBox && !got.FilesLost // it has said so
			return got
		}
		p.fail("%q ended as %s (%s), want %s; %v", c.Shell, got.State, got.Reason, state, err)
	}
	if got.StartedAt != nil {
		if got.FilesLost != (p.hadBox && p.lostBox) {
			p.fail("%q: files lost is %v", c.Shell, got.FilesLost)
		}
		p.hadBox, p.lostBox = true, false
	}
	return got
}

func (p *player) run(line string, state api.State) (api.Command, string) {
	c := p.finish(p.start(api.NewCommand{Shell: line}), state)
	text, err := again(p, "output", func() (string, error) {
		var out strings.Builder
		_, err := p.d.Output(p.t.Context(), p.chat, c.ID, false, func(chunk api.OutputChunk) error {
			if chunk.Stream == "stdout" {
				out.Write(chunk.Data)
			}
			return nil
		})
		return out.String(), err
	})
	if err != nil {
		p.fail("output of %q: %v", line, err)
	}
	return c, text
}

// started tells whether anything of a command happened.
func started(c api.Command) bool {
	return c.StartedAt != nil && !strings.Contains(c.Reason, "before it was started")
}

func (p *player) text() string { return strconv.FormatUint(p.r.Uint64(), 36) }

func (p *player) put() {
	name, text := fmt.Sprintf("f%d", p.r.IntN(3)), p.text()
	_, err := again(p, "put", func() (api.FileInfo, error) {
		return p.d.PutFile(p.t.Context(), p.chat, "/workspace/"+name, strings.NewReader(text))
	})
	if err != nil {
		p.fail("put: %v", err)
	}
	p.files[name] = text
	p.hadBox = true // that files were lost is said by the next command
}

func (p *player) read() {
	name := fmt.Sprintf("f%d", p.r.IntN(3))
	want, ok := p.files[name]
	state := api.StateSucceeded
	if !ok {
		state = api.StateFailed
	}
	if c, got := p.run("cat /workspace/"+name, state); started(c) && got != want {
		p.fail("%s holds %q, want %q", name, got, want)
	}
}

func (p *player) output() {
	name, text := fmt.Sprintf("o%d", p.r.IntN(2)), p.text()
	c, _ := p.run("printf "+text+" >/outputs/"+name, api.StateSucceeded)
	if !started(c) {
		return
	}
	ordinal, ok := p.outputs[name]
	if !ok {
		ordinal = len(p.contents) + 1
		p.outputs[name] = ordinal
	}
	p.contents[ordinal] = text
	p.revisions[ordinal]++
}

func (p *player) exit() {
	n := p.r.IntN(256)
	state := api.StateFailed
	if n == 0 {
		state = api.StateSucceeded
	}
	if c, out := p.run(fmt.Sprintf("echo %d; exit %d", n, n), state); started(c) && (exitCode(c) != n || out != fmt.Sprintln(n)) {
		p.fail("exit %d: code %d, output %q", n, exitCode(c), out)
	}
}

// kill signals a command, once it has begun.
func (p *player) kill(c api.Command, signal int) {
	_, err := again(p, "kill", func() (struct{}, error) { return struct{}{}, p.d.Kill(p.t.Context(), p.chat, c.ID, signal) })
	if err != nil && code(err) != api.CodeCommandEnded {
		p.fail("kill: %v", err)
	}
}

// up waits until a command says that it has begun; false when it never will.
func (p *player) up(c api.Command) bool {
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		got, err := again(p, "look", func() (api.Command, error) { return p.d.Command(p.t.Context(), p.chat, c.ID) })
		if err != nil || got.State.Ended() {
			return false
		}
		if got.Stdout.Bytes > 0 {
			return true
		}
		<-time.After(10 * time.Millisecond)
	}
	return false
}

func (p *player) cancel() {
	c := p.start(api.NewCommand{Shell: "echo up; setsid sleep 300 & sleep 300"})
	if p.up(c) {
		p.kill(c, 0)
	}
	p.finish(c, api.StateCanceled)
}

func (p *player) signal() {
	c := p.start(api.NewCommand{Shell: "echo up; exec sleep 300"})
	if p.up(c) {
		p.kill(c, 15)
	}
	if c = p.finish(c, api.StateFailed); started(c) && c.Signal != 15 {
		p.fail("signal %d", c.Signal)
	}
}

func (p *player) timeout() {
	p.finish(p.start(api.NewCommand{Shell: "sleep 300", Timeout: 0.3}), api.StateTimedOut)
}

// suicide ends the sandbox from within: its files are gone, its cells stay.
func (p *player) suicide() {
	if c, _ := p.run("kill -9 1; sleep 60", api.StateLost); started(c) {
		p.files, p.outputs = map[string]string{}, map[string]int{}
		p.lostBox = true
	}
}

func (p *player) compareCells() {
	cells, err := again(p, "cells", func() ([]api.Cell, error) {
		cells, err := p.d.Cells(p.t.Context(), p.chat)
		for _, c := range cells {
			if c.State == api.CellPending {
				err = errors.New("a cell is pending")
			}
		}
		return cells, err
	})
	if err != nil || len(cells) != len(p.contents) {
		p.fail("%d cells, want %d; %v", len(cells), len(p.contents), err)
		return
	}
	for _, c := range cells {
		got, err := again(p, "content", func() (string, error) {
			r, _, err := p.d.OpenCell(p.t.Context(), p.chat, c.Ordinal)
			if err != nil {
				return "", err
			}
			defer r.Close()
			data, err := io.ReadAll(r)
			return string(data), err
		})
		if err != nil || got != p.contents[c.Ordinal] || c.Revision != p.revisions[c.Ordinal] {
			p.fail("cell #%d is revision %d with %q, want %d with %q; %v", c.Ordinal, c.Revision, got, p.revisions[c.Ordinal], p.contents[c.Ordinal], err)
		}
	}
}
