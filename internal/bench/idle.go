package main

import (
	"fmt"
	"strconv"
	"time"

	"mediasandbox/daemon/config"
	"mediasandbox/internal/meminfo"
)

const (
	mb = 1e6
	// fewChats are taken where memory does not suffice for -chats, of which
	// each is expected to need perChat bytes.
	fewChats = 20
	perChat  = 160 * mb
)

// idleChats makes n chats that rest, and measures each one's memory.
func (b *bench) idleChats(d *daemon, n int) ([]footprint, error) {
	for i := range n {
		if i%5 == 0 {
			b.tick()
		}
		if _, err := d.newChat(b.ctx, callTrue); err != nil {
			return nil, err
		}
	}
	if err := d.settled(); err != nil {
		return nil, err
	}
	ids, err := d.sandboxes()
	if err != nil {
		return nil, err
	}
	table, err := processes()
	if err != nil {
		return nil, err
	}
	prints := make([]footprint, len(ids))
	for i, id := range ids {
		if prints[i], err = d.footprintOf(table, id); err != nil {
			return nil, err
		}
	}
	return prints, nil
}

func (b *bench) measureWithoutPython() error {
	d, err := b.startDaemon("cold", func(l *config.Limits) { l.WarmPython = false })
	if err != nil {
		return err
	}
	prints, err := b.idleChats(d, b.samples)
	if err != nil {
		return err
	}
	b.add(memoryRow("memory of an idle sandbox with gate and init, beyond shared pages, warm Python off", prints))
	b.details = append(b.details, memoryDetail("Memory of an idle sandbox, warm Python off (MB)", prints))
	return d.stop()
}

func memoryRow(what string, prints []footprint) row {
	var own sample
	for _, f := range prints {
		own = append(own, f.own()/mb)
	}
	return row{what: what, unit: "MB", subject: own, targets: []target{atMost("p50", 90)}}
}

// memoryDetail lists the medians of what the parts of a sandbox hold.
func memoryDetail(title string, prints []footprint) detail {
	d := detail{
		title: fmt.Sprintf("%s, median of %d", title, len(prints)),
		head:  []string{"part", "RSS", "PSS", "of it anonymous", "of it memory files", "of it mapped files", "private"},
		note: "PSS shares a page out among those who map it. The stubs are the guest's address spaces; each is counted once. " +
			"The row's figure is anonymous memory of all parts, and what the guest's memory files hold whether mapped or not; " +
			"programs and image are page cache, once for all sandboxes.",
	}
	for _, part := range []struct {
		name string
		of   func(footprint) memory
	}{
		{"sentry", func(f footprint) memory { return f.sentry }},
		{"guest's address spaces (stubs)", func(f footprint) memory { return f.stubs }},
		{"gofer", func(f footprint) memory { return f.gofer }},
		{"gate", func(f footprint) memory { return f.gate }},
		{"all", footprint.all},
	} {
		cells := []string{part.name}
		for _, field := range []func(memory) float64{
			func(m memory) float64 { return m.rss }, func(m memory) float64 { return m.pss }, func(m memory) float64 { return m.anon },
			func(m memory) float64 { return m.shmem }, func(m memory) float64 { return m.file }, func(m memory) float64 { return m.private },
		} {
			var s sample
			for _, f := range prints {
				s = append(s, field(part.of(f))/mb)
			}
			cells = append(cells, number(s.p50()))
		}
		d.rows = append(d.rows, cells)
	}
	var guest sample
	for _, f := range prints {
		guest = append(guest, f.guest/mb)
	}
	d.rows = append(d.rows, []string{"guest's memory files, whole", "", "", "", number(guest.p50()), "", ""})
	return d
}

func (b *bench) measureIdle() error {
	n := b.chats
	if available, err := meminfo.Bytes(meminfo.Available); err != nil {
		return err
	} else if float64(n)*perChat > float64(available) {
		b.findings = append(b.findings, fmt.Sprintf("The host has %s GB of memory available, too little for %d idle chats: there were %d.",
			number(float64(available)/1e9), n, fewChats))
		n = fewChats
	}
	prints, err := b.idleChats(b.main, n)
	if err != nil {
		return err
	}
	b.add(memoryRow("memory of an idle warm sandbox with gate and init, beyond shared pages", prints))
	b.details = append(b.details, memoryDetail("Memory of an idle warm sandbox (MB)", prints))
	return b.measureDaemon(n)
}

// window is how long the processor's time is counted for one sample.
const window = time.Second

// measureDaemon measures the daemon while nothing happens.
func (b *bench) measureDaemon(chats int) error {
	d, pid := b.main, b.main.cmd.Process.Pid
	var rss, cpu sample
	last, err := threadTime(pid)
	if err != nil {
		return err
	}
	sandboxes, err := d.cpuOfAll()
	if err != nil {
		return err
	}
	began, since := time.Now(), time.Now()
	for range b.samples {
		select {
		case <-time.After(window):
		case <-b.ctx.Done():
			return b.ctx.Err()
		}
		now, err := threadTime(pid)
		if err != nil {
			return err
		}
		cpu = append(cpu, 100*float64(now-last)/float64(time.Since(since)))
		last, since = now, time.Now()
		m, err := memoryOf(pid)
		if err != nil {
			return err
		}
		rss = append(rss, m.rss/mb)
	}
	all, err := d.cpuOfAll()
	if err != nil {
		return err
	}
	took := time.Since(began)
	with := " with " + strconv.Itoa(chats) + " idle chats"
	b.add(row{what: "daemon: RSS" + with, unit: "MB", subject: rss, targets: []target{atMost("p50", 80)}})
	b.add(row{
		what: "daemon: CPU" + with + ", each second", unit: "% of a core", subject: cpu, targets: []target{atMost("mean", 0.5)},
	})
	b.findings = append(b.findings, fmt.Sprintf(
		"Over %s of rest the daemon used %s %% of a core (mean), daemon and %d sandboxes together %s %%.",
		took.Round(time.Second), number(cpu.mean()), chats+d.cfg.Limits.Pool, number(100*float64(all-sandboxes)/float64(took))))
	return nil
}
