package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/config"
	"mediasandbox/runtime/sandbox"
)

// wireSource moves bytes to and from a server, or connects, and prints how
// many milliseconds each took. Arguments: what, host, port, how much of it.
const wireSource = `import json, socket, sys, time

what, host, port, amount = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
address = (socket.gethostbyname(host), port)
clock = time.perf_counter

def connect(first=b""):
    s = socket.socket()
    s.connect(address)
    if first:
        s.sendall(first)
    return s

def fetch():
    memory = memoryview(bytearray(1 << 20))
    s = connect(b"f")
    began, left = clock(), amount
    while left > 0:
        n = s.recv_into(memory)
        if n == 0:
            raise EOFError
        left -= n
    return [clock() - began]

def push():
    memory = memoryview(bytearray(1 << 20))
    s = connect(b"p")
    began, left = clock(), amount
    while left > 0:
        left -= s.send(memory[:left])
    s.shutdown(socket.SHUT_WR)
    if s.recv(1):
        raise EOFError
    return [clock() - began]

def opened():
    times = []
    for _ in range(amount):
        s = socket.socket()
        began = clock()
        s.connect(address)
        times.append(clock() - began)
        s.close()
    return times

def rate():
    began = clock()
    for _ in range(amount):
        connect().close()
    return [(clock() - began) / amount]

def echo():
    s = connect(b"e")
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    times = []
    for _ in range(amount):
        began = clock()
        s.send(b"x")
        s.recv(1)
        times.append(clock() - began)
    return times

def hold():
    held = [connect(b"e") for _ in range(amount)]
    time.sleep(1)
    return [float(len(held))]

todo = {"fetch": fetch, "push": push, "opened": opened, "rate": rate, "echo": echo, "hold": hold}
print(json.dumps([t * 1000 for t in todo[what]()]))
`

const (
	// moved is what a transfer moves, in bytes.
	moved = 1_000_000_000
	// opens and echoes are taken in each turn; idleConns are held open at once.
	opens, echoes, idleConns = 50, 100, 1000
	// serviceName is how the sandbox knows the server on the host's loopback.
	serviceName = "peer.internal"
)

// way is one way from a program to a server.
type way struct {
	name string
	run  func(what string, amount int) (sample, error)
}

// wired are the ways that are compared, by turns.
type wired struct {
	gate, veth, loopback way
	// pid is the gate's.
	pid int
}

// measureGate compares the sandbox's way out with the plain ones.
func (b *bench) measureGate() error {
	w, err := b.newWired()
	if err != nil {
		return err
	}
	fresh, err := memoryOf(w.pid)
	if err != nil {
		return err
	}
	speed := detail{
		title: "The way out of a sandbox, and the plain ones (medians)",
		head:  []string{"what", "gate", "runsc over veth, routed", "gate of veth", "bare host, loopback"},
		note: "In all three the same Python of the image speaks with the same server; only the way differs. The gate's server and the bare host's are on the " +
			"host's loopback; the veth's is behind a router that forwards, in namespaces of the run's own.",
	}
	busy, err := b.measureTransfers(w, &speed)
	if err != nil {
		return err
	}
	if err := b.measureConnections(w, &speed); err != nil {
		return err
	}
	b.details = append(b.details, speed)
	return b.measureGateMemory(w, fresh.rss/mb, busy)
}

// newWired starts a daemon whose sandboxes reach a server, a bare sandbox on a
// veth, and the servers.
func (b *bench) newWired() (w wired, err error) {
	near, err := b.listenPeers("", "127.0.0.1:0")
	if err != nil {
		return w, err
	}
	spaces, err := b.newWires()
	if err != nil {
		return w, err
	}
	far, err := b.listenPeers(spaces.server, serverAddr+":0")
	if err != nil {
		return w, err
	}
	service, err := sandbox.ParseNetworkService(serviceName + ":" + near + " = 127.0.0.1:" + near)
	if err != nil {
		return w, err
	}
	d, err := b.startConfigured("gate", func(c *config.Config) { c.Network.Services = []sandbox.NetworkService{service} })
	if err != nil {
		return w, err
	}
	chat, err := d.newChat(b.ctx, callTrue)
	if err != nil {
		return w, err
	}
	if w.pid, err = d.gateOfChat(chat); err != nil {
		return w, err
	}
	plain, err := b.bare.runIn(b.ctx, spaces.guest)
	if err != nil {
		return w, err
	}
	argv := func(what, host, port string, amount int) []string {
		return []string{"python3", "-S", "-c", wireSource, what, host, port, strconv.Itoa(amount)}
	}
	w.gate = way{"gate", func(what string, amount int) (sample, error) {
		cmd, err := d.finish(b.ctx, chat, api.NewCommand{Argv: argv(what, serviceName, near, amount)})
		if err != nil {
			return nil, err
		}
		text, _, err := d.printed(b.ctx, cmd)
		return readTimes(text, err)
	}}
	w.veth = way{"veth", func(what string, amount int) (sample, error) {
		return readTimes(b.bare.output(b.ctx, plain, argv(what, serverAddr, far, amount)...))
	}}
	w.loopback = way{"loopback", func(what string, amount int) (sample, error) {
		done, err := b.root.run(b.ctx, argv(what, "127.0.0.1", near, amount)...)
		return readTimes(done.stdout, err)
	}}
	return w, nil
}

func readTimes(text string, err error) (s sample, _ error) {
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return nil, fmt.Errorf("read what a script measured: %w: %q", err, text)
	}
	return s, nil
}

// gateOfChat is the pid of the gate of a chat's sandbox, which its events name.
func (d *daemon) gateOfChat(chat string) (int, error) {
	id := ""
	ctx, cancel := context.WithTimeout(d.b.ctx, answerTimeout)
	defer cancel()
	err := d.Events(ctx, chat, 0, func(ev api.Event) error {
		if ev.Type == api.EventSandboxStarted {
			id = ev.Message
			cancel()
		}
		return nil
	})
	if id == "" {
		return 0, fmt.Errorf("find the sandbox of chat %s: %w", chat, err)
	}
	return d.gateOf(id)
}

// inTurns takes samples of all ways, one after the other each time.
func (b *bench) inTurns(w wired, what string, times, amount int) (gate, veth, loopback sample, err error) {
	for range times {
		b.tick()
		for _, t := range []struct {
			way way
			all *sample
		}{{w.gate, &gate}, {w.veth, &veth}, {w.loopback, &loopback}} {
			s, err := t.way.run(what, amount)
			if err != nil {
				return nil, nil, nil, fmt.Errorf("%s over %s: %w", what, t.way.name, err)
			}
			*t.all = append(*t.all, s...)
		}
	}
	return gate, veth, loopback, nil
}

const againstVeth = "the same Python in bare runsc, over a veth pair to a router of the run's own, and on to the server"

// measureTransfers moves bytes both ways. It returns how much memory the gate
// had while it did.
func (b *bench) measureTransfers(w wired, speed *detail) (busy sample, err error) {
	watched := w
	var cpu sample
	watched.gate.run = func(what string, amount int) (s sample, err error) {
		before, err := threadTime(w.pid)
		if err != nil {
			return nil, err
		}
		most, err := peakRSS(w.pid, func() (err error) {
			s, err = w.gate.run(what, amount)
			return err
		})
		if err != nil {
			return nil, err
		}
		after, err := threadTime(w.pid)
		busy = append(busy, most/mb)
		cpu = append(cpu, (after-before).Seconds()*1e9/moved)
		return s, err
	}
	for _, t := range []struct{ what, name string }{{"fetch", "guest ← host"}, {"push", "guest → host"}} {
		cpu = nil
		gate, veth, loopback, err := b.inTurns(watched, t.what, b.samples, moved)
		if err != nil {
			return nil, err
		}
		// 0.7 of the veth's throughput is this much of its time.
		b.add(row{
			what: "network, " + t.name + ": 1 GB", unit: "ms", subject: gate, against: againstVeth, base: veth,
			targets: []target{atMost("ratio", 1/0.7)},
		})
		b.add(row{what: "network, " + t.name + ": the gate's CPU for 1 GB", unit: "s", subject: cpu})
		rate := func(s sample) float64 { return moved / mb / (s.p50() / 1000) }
		speed.rows = append(speed.rows, []string{
			t.name + ", MB/s", number(rate(gate)), number(rate(veth)), number(rate(gate)/rate(veth)) + " ×", number(rate(loopback)),
		})
	}
	return busy, nil
}

// peakRSS returns the most that a process held resident while f ran, in bytes.
func peakRSS(pid int, f func() error) (most float64, err error) {
	done := make(chan error, 1)
	go func() { done <- f() }()
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for {
		m, err := memoryOf(pid)
		if err != nil {
			<-done
			return most, err
		}
		most = max(most, m.rss)
		select {
		case err := <-done:
			return most, err
		case <-look.C:
		}
	}
}

// measureConnections sets connections up, one after the other, and sends a
// byte there and back.
func (b *bench) measureConnections(w wired, speed *detail) error {
	for _, t := range []struct {
		what, name string
		amount     int
		targets    []target
	}{
		{"opened", "network: set up a connection", opens, []target{atMost("p50", 2)}},
		{"echo", "network: a byte to the server and back", echoes, nil},
	} {
		gate, veth, loopback, err := b.inTurns(w, t.what, b.samples, t.amount)
		if err != nil {
			return err
		}
		b.add(row{what: t.name, unit: "ms", subject: gate, against: againstVeth, base: veth, targets: t.targets})
		for _, q := range []struct {
			name string
			of   func(sample) float64
		}{{"p50", sample.p50}, {"p95", sample.p95}} {
			speed.rows = append(speed.rows, []string{
				t.name + ", " + q.name + " in ms", number(q.of(gate)), number(q.of(veth)), number(q.of(gate)/q.of(veth)) + " ×", number(q.of(loopback)),
			})
		}
	}
	gate, veth, loopback, err := b.inTurns(w, "rate", b.samples, opens)
	if err != nil {
		return err
	}
	rate := func(s sample) float64 { return 1000 / s.p50() }
	speed.rows = append(speed.rows, []string{
		"connections set up and closed in a second, one at a time", number(rate(gate)), number(rate(veth)), number(rate(gate)/rate(veth)) + " ×", number(rate(loopback)),
	})
	return nil
}

// measureGateMemory looks at gates that rest, and at one with many connections.
func (b *bench) measureGateMemory(w wired, fresh float64, busy sample) error {
	held, err := peakRSS(w.pid, func() error {
		_, err := w.gate.run("hold", idleConns)
		return err
	})
	if err != nil {
		return err
	}
	var idle sample
	for range b.samples {
		b.tick()
		chat, err := b.main.newChat(b.ctx, callTrue)
		if err != nil {
			return err
		}
		pid, err := b.main.gateOfChat(chat)
		if err != nil {
			return err
		}
		m, err := memoryOf(pid)
		if err != nil {
			return err
		}
		idle = append(idle, m.rss/mb)
		if err := b.main.drop(b.ctx, chat); err != nil {
			return err
		}
	}
	b.add(row{what: "network: RSS of an idle gate", unit: "MB", subject: idle, targets: []target{atMost("p50", 40)}})
	b.add(row{what: "network: RSS of a gate that moves 1 GB, at its highest", unit: "MB", subject: busy})
	b.findings = append(b.findings, fmt.Sprintf(
		"A gate's RSS, once each: %s MB before its first flow, %s MB with %d connections open.", number(fresh), number(held/mb), idleConns))
	return nil
}
