package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"time"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/config"
)

// callTrue is the smallest command.
var callTrue = api.NewCommand{Argv: []string{"true"}}

const againstBare = "bare `runsc run --detach` + `runsc exec true`"

// timed says how long f took.
func timed(f func() error) (time.Duration, error) {
	began := time.Now()
	err := f()
	return time.Since(began), err
}

// measureFirst takes samples of the first command of a new chat against
// baseline. The chat is removed before the baseline runs.
func (b *bench) measureFirst(d *daemon, req api.NewCommand, baseline func() (time.Duration, error)) (subject, base sample, err error) {
	for range b.samples {
		b.tick()
		if err := d.settled(); err != nil {
			return nil, nil, err
		}
		var chat string
		took, err := timed(func() (err error) {
			chat, err = d.newChat(b.ctx, req)
			return err
		})
		if err := errors.Join(err, d.drop(b.ctx, chat)); err != nil {
			return nil, nil, err
		}
		subject.add(took)
		if took, err = baseline(); err != nil {
			return nil, nil, err
		}
		base.add(took)
	}
	return subject, base, nil
}

func (b *bench) measureCreate() error {
	subject, base, err := b.measureFirst(b.main, callTrue, func() (time.Duration, error) { return b.bare.first(b.ctx) })
	if err != nil {
		return err
	}
	b.add(row{
		what: "create a chat and get the first result (`true`), pool warm", unit: "ms",
		subject: subject, against: againstBare, base: base,
		targets: []target{atMost("p50", 15), atMost("p95", 40)},
	})
	return nil
}

func (b *bench) measureEmptyPool() error {
	d, err := b.startDaemon("empty", func(l *config.Limits) { l.Pool = 0 })
	if err != nil {
		return err
	}
	subject, base, err := b.measureFirst(d, callTrue, func() (time.Duration, error) { return b.bare.first(b.ctx) })
	if err != nil {
		return err
	}
	b.add(row{
		what: "the same, pool empty", unit: "ms", subject: subject, against: againstBare, base: base,
		targets: []target{atMost("ratio", 1.3)},
	})
	if err := b.explainBoot(d); err != nil {
		return err
	}
	return d.stop()
}

// bootLine is what a daemon logs of a boot.
var bootLine = regexp.MustCompile(`msg="sandbox booted" .*network=(\S+) runsc=(\S+) init=(\S+)`)

// explainBoot says where the time of a daemon's boots went.
func (b *bench) explainBoot(d *daemon) error {
	text, err := os.ReadFile(filepath.Join(d.dir, "log"))
	if err != nil {
		return fmt.Errorf("read a daemon's log: %w", err)
	}
	stretches := make([]sample, 3)
	for _, found := range bootLine.FindAllStringSubmatch(string(text), -1) {
		for i := range stretches {
			took, err := time.ParseDuration(found[i+1])
			if err != nil {
				return fmt.Errorf("read a daemon's log: %w", err)
			}
			stretches[i].add(took)
		}
	}
	if len(stretches[0]) == 0 {
		return errors.New("the daemon's log tells of no boot")
	}
	var rows [][]string
	for i, what := range []string{
		"its namespace, TAP and gate", "`runsc run` (in cgroups of the host, with the product's directories)", "until PID 1 has started in the guest and answers",
	} {
		rows = append(rows, []string{what, number(stretches[i].p50()), number(stretches[i].p95())})
	}
	b.details = append(b.details, detail{
		title: "Where the time of a boot goes (ms)", head: []string{"stretch", "p50", "p95"}, rows: rows,
		note: "Before it comes its disk, which is formatted and mounted, and after it the first command. The baseline's runsc joins no cgroup; " +
			"on cgroup v1 joining and leaving one waits for the kernel twice, and the product shares nine directories where the baseline shares one.",
	})
	return nil
}

// cheap is how many times more samples are taken of what takes milliseconds.
const cheap = 4

// anatomy is where the time of one command went.
type anatomy struct{ accept, begin, ran, answer sample }

// finishAnd runs a command to its end and notes the stretches of its time. The
// daemon's stamps and ours are of the same clock.
func (a *anatomy) finishAnd(ctx context.Context, d *daemon, chat string, req api.NewCommand) (time.Duration, error) {
	began := time.Now()
	cmd, err := d.Start(ctx, chat, req)
	if err != nil {
		return 0, err
	}
	accepted := time.Now()
	if cmd, err = d.Wait(ctx, chat, cmd.ID); err != nil {
		return 0, err
	}
	now := time.Now()
	if cmd.State != api.StateSucceeded || cmd.StartedAt == nil || cmd.EndedAt == nil {
		return 0, fmt.Errorf("command %s ended as %s: %s", cmd.ID, cmd.State, cmd.Reason)
	}
	a.accept.add(accepted.Sub(began))
	a.begin.add(cmd.StartedAt.Sub(cmd.CreatedAt))
	a.ran.add(cmd.EndedAt.Sub(*cmd.StartedAt))
	a.answer.add(now.Sub(*cmd.EndedAt))
	return now.Sub(began), nil
}

func (b *bench) measureWarmTrue() error {
	d := b.main
	chat, err := d.newChat(b.ctx, callTrue)
	if err != nil {
		return err
	}
	if err := d.settled(); err != nil {
		return err
	}
	var subject, base sample
	var a anatomy
	before, err := d.transactions()
	if err != nil {
		return err
	}
	for range cheap * b.samples {
		took, err := a.finishAnd(b.ctx, d, chat, callTrue)
		if err != nil {
			return err
		}
		subject.add(took)
		if took, err = timed(func() error { return b.bare.exec(b.ctx, b.bare.standing) }); err != nil {
			return err
		}
		base.add(took)
	}
	after, err := d.transactions()
	if err != nil {
		return err
	}
	sync, err := b.measureSync(d)
	if err != nil {
		return err
	}
	b.add(row{
		what: "`true` in a warm chat (API call to end state)", unit: "ms",
		subject: subject, against: "`runsc exec true`", base: base,
		targets: []target{atMost("p50", 7), atMost("ratio", 1.0/3)},
	})
	b.explainTrue(a, subject, float64(after-before)/float64(len(subject)), sync)
	if err := b.measureFloor(chat); err != nil {
		return err
	}
	return d.drop(b.ctx, chat)
}

func (b *bench) explainTrue(a anatomy, all sample, commits float64, sync sample) {
	b.details = append(b.details, detail{
		title: "Where the time of `true` in a warm chat goes (ms)",
		head:  []string{"stretch", "p50", "p95"},
		rows: [][]string{
			{"the request to start it, until its answer", number(a.accept.p50()), number(a.accept.p95())},
			{"from its record being made until the daemon has noted it as running", number(a.begin.p50()), number(a.begin.p95())},
			{"from there until its end is noted: guest, output, scan of /outputs", number(a.ran.p50()), number(a.ran.p95())},
			{"from there until the caller has it: commits of the end, answer", number(a.answer.p50()), number(a.answer.p95())},
		},
		note: "The first two stretches overlap: the daemon goes on while its answer travels.",
	})
	total := commits * 2 * sync.p50()
	b.findings = append(b.findings, fmt.Sprintf(
		"A command costs %.1f commits of the state's database. A commit is two `fdatasync`; one on an idle file beside "+
			"the database takes %s ms here (p95 %s), so about %s ms of the %s ms of `true` in a warm chat are the disk's.",
		commits, number(sync.p50()), number(sync.p95()), number(total), number(all.p50())))
}

// warmChildAgain is how long a warm chat rests before its next Python command:
// sandbox-init forks the next child some 50 ms after it gave one away.
const warmChildAgain = 150 * time.Millisecond

func (b *bench) measureWarmPython() error {
	d := b.main
	if err := b.root.write("draw.py", []byte(drawSource)); err != nil {
		return err
	}
	chat, err := d.newChat(b.ctx, draw)
	if err != nil {
		return err
	}
	if err := d.settled(); err != nil {
		return err
	}
	var subject, base, hurried sample
	for range 2 * b.samples {
		took, err := timed(func() error { _, err := d.finish(b.ctx, chat, draw); return err })
		if err != nil {
			return err
		}
		subject.add(took)
		// While the next child gets ready.
		rested := time.After(warmChildAgain)
		if took, err = b.drawBare(); err != nil {
			return err
		}
		base.add(took)
		<-rested
	}
	for range b.samples {
		took, err := timed(func() error { _, err := d.finish(b.ctx, chat, draw); return err })
		if err != nil {
			return err
		}
		hurried.add(took)
	}
	b.add(row{
		what: "Python importing numpy and Pillow and drawing one image, warm chat", unit: "ms",
		subject: subject, against: againstPython, base: base,
		targets: []target{atMost("p50", 8), atMost("ratio", 1.0/12)},
	})
	b.add(row{what: "the same, one command right after the other", unit: "ms", subject: hurried, against: againstPython, base: base})
	return d.drop(b.ctx, chat)
}

func (b *bench) measureFirstPython() error {
	if err := b.root.write("draw.py", []byte(drawSource)); err != nil {
		return err
	}
	subject, base, err := b.measureFirst(b.main, draw, b.drawBare)
	if err != nil {
		return err
	}
	b.add(row{
		what: "the same as the first command of a new chat, pool warm", unit: "ms",
		subject: subject, against: againstPython, base: base, targets: []target{atMost("p50", 15)},
	})
	return nil
}

// burst is how many chats are created at once, and how often.
const (
	burst       = 20
	burstRounds = 2
)

func (b *bench) measureBurst() error {
	d := b.main
	var subject, base sample
	for round := range burstRounds {
		b.tick()
		if err := d.settled(); err != nil {
			return err
		}
		chat := func(i int) string { return "burst-" + strconv.Itoa(round) + "-" + strconv.Itoa(i) }
		d.chats += burst
		took, err := atOnce(burst, func(i int) error {
			if _, err := d.CreateChat(b.ctx, api.NewChat{ID: chat(i)}); err != nil {
				return err
			}
			_, err := d.finish(b.ctx, chat(i), callTrue)
			return err
		})
		if err != nil {
			return err
		}
		subject = append(subject, took...)
		for i := range burst {
			if err := d.drop(b.ctx, chat(i)); err != nil {
				return err
			}
		}
		if err := d.settled(); err != nil {
			return err
		}
		ids := make([]string, burst)
		took, err = atOnce(burst, func(i int) (err error) {
			if ids[i], err = b.bare.run(b.ctx); err == nil {
				err = b.bare.exec(b.ctx, ids[i])
			}
			return err
		})
		for _, id := range ids {
			err = errors.Join(err, b.bare.remove(id))
		}
		if err != nil {
			return err
		}
		base = append(base, took...)
	}
	b.add(row{
		what: fmt.Sprintf("%d chats created at once, each until its first result (all succeeded)", burst), unit: "ms",
		subject: subject, against: fmt.Sprintf("%d times bare `runsc run` + `runsc exec` at once", burst), base: base,
	})
	return nil
}

// atOnce runs f n times at the same time and says how long each took.
func atOnce(n int, f func(i int) error) (sample, error) {
	took := make([]time.Duration, n)
	errs := make([]error, n)
	var all sync.WaitGroup
	began := time.Now()
	for i := range n {
		all.Go(func() {
			errs[i] = f(i)
			took[i] = time.Since(began)
		})
	}
	all.Wait()
	var s sample
	for _, t := range took {
		s.add(t)
	}
	return s, errors.Join(errs...)
}
