package main

import (
	"encoding/json"
	"fmt"

	"mediasandbox/daemon/api"
)

// floorSource measures what the platform itself asks for, with nothing of ours
// in the way: processes started and ended by another of the same sandbox, a byte
// sent to another process and back, and memory written to for the first time.
const floorSource = `import json, mmap, os, sys, time

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

def ffmpeg():
    quiet = [(os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0)]
    os.waitpid(os.posix_spawn("/usr/bin/ffmpeg", ["ffmpeg", "-version"], os.environ, file_actions=quiet), 0)

PAGES, PAGE = 1000, 4096

def write(memory):
    for at in range(0, PAGES * PAGE, PAGE):
        memory[at] = 1

def fresh():
    memory = mmap.mmap(-1, PAGES * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    write(memory)
    memory.close()

ours = mmap.mmap(-1, PAGES * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
write(ours)

def copied():
    r, w = os.pipe()
    if os.fork() == 0:
        began = time.perf_counter()
        write(ours)
        os.write(w, str((time.perf_counter() - began) * 1000).encode())
        os._exit(0)
    os.close(w)
    took = float(os.read(r, 100))
    os.close(r)
    os.wait()
    return took

n = int(sys.argv[1])
json.dump({
    "spawn": took(spawn, n), "ping": took(ping, n), "ffmpeg": took(ffmpeg, n // 2), "fresh": took(fresh, n // 2),
    "copied": [copied() for _ in range(n // 2)],
}, sys.stdout)
`

// floor is what the platform takes for the least that a command needs.
type floor struct {
	Spawn sample `json:"spawn"`
	Ping  sample `json:"ping"`
	// FFmpeg starts one that prints its version and ends.
	FFmpeg sample `json:"ffmpeg"`
	// Fresh and Copied write to a thousand pages of new memory, and of memory
	// that a fork shares.
	Fresh  sample `json:"fresh"`
	Copied sample `json:"copied"`
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
			floorRow("start `ffmpeg -version` and wait for its end: some 200 shared libraries are mapped and relocated", in.FFmpeg, out.FFmpeg),
			floorRow("a byte through a pipe to another process and back", in.Ping, out.Ping),
			floorRow("write to 1000 pages of memory for the first time", in.Fresh, out.Fresh),
			floorRow("write to 1000 pages that a fork shares with its parent", in.Copied, out.Copied),
		},
		note: "No command can be faster than the first line, however it is started, and none of ffmpeg's than the second. What work of " +
			"memory and threads costs more than on the bare host, the last three say.",
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
