package main

import (
	"encoding/json"
	"fmt"

	"mediasandbox/daemon/api"
)

// floorSource measures what the platform itself asks for, with nothing of ours
// in the way: a process started and ended by another of the same sandbox, and
// a byte sent to another process and back.
const floorSource = `import json, os, sys, time

def took(f, n):
    times = []
    for _ in range(n):
        time.sleep(0.01)
        began = time.perf_counter()
        f()
        times.append((time.perf_counter() - began) * 1000)
    return times

def spawn():
    os.waitpid(os.posix_spawn("/usr/bin/true", ["true"], {}), 0)

there, back = os.pipe(), os.pipe()
if os.fork() == 0:
    os.close(there[1])
    while os.read(there[0], 1):
        os.write(back[1], b"b")
    os._exit(0)

def ping():
    os.write(there[1], b"a")
    os.read(back[0], 1)

n = int(sys.argv[1])
json.dump({"spawn": took(spawn, n), "ping": took(ping, n)}, sys.stdout)
`

// floor is what the platform takes for the least that a command needs.
type floor struct {
	Spawn sample `json:"spawn"`
	Ping  sample `json:"ping"`
}

// measureFloor measures it in a chat and in the chroot.
func (b *bench) measureFloor(chat string) error {
	argv := []string{"python3", "-S", "-c", floorSource, fmt.Sprint(2 * b.samples)}
	var in, out floor
	cmd, err := b.main.finish(b.ctx, chat, api.NewCommand{Argv: argv})
	if err != nil {
		return err
	}
	text, _, err := b.main.printed(b.ctx, cmd)
	if err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(text), &in); err != nil {
		return fmt.Errorf("read what a script measured: %w", err)
	}
	native, err := b.root.run(b.ctx, argv...)
	if err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(native.stdout), &out); err != nil {
		return fmt.Errorf("read what a script measured: %w", err)
	}
	b.details = append(b.details, detail{
		title: "What the platform asks for on this machine, without anything of ours (ms)",
		head:  []string{"what", "sandbox p50", "p95", "bare host p50", "p95", "ratio of p50"},
		rows: [][]string{
			floorRow("start `true` and wait for its end, from a process beside it", in.Spawn, out.Spawn),
			floorRow("a byte through a pipe to another process and back", in.Ping, out.Ping),
		},
		note: "No command can be faster than the first line, however it is started.",
	})
	b.findings = append(b.findings, fmt.Sprintf(
		"gVisor takes %s ms to start and end `true` here even when nothing of ours is between, the bare host %s ms; "+
			"a byte to another process and back takes %s ms against %s ms.",
		number(in.Spawn.p50()), number(out.Spawn.p50()), number(in.Ping.p50()), number(out.Ping.p50())))
	return nil
}

func floorRow(what string, in, out sample) []string {
	return []string{what, number(in.p50()), number(in.p95()), number(out.p50()), number(out.p95()), number(in.p50()/out.p50()) + " ×"}
}
