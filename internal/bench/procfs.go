package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// process is one line of the host's process table.
type process struct {
	parent int
	args   []string
	// cpu is the processor time used so far; the kernel counts it in ticks.
	cpu time.Duration
}

// tick is the unit of times in /proc/PID/stat: USER_HZ is 100 on every
// architecture that gVisor runs on.
const tick = 10 * time.Millisecond

// processes reads the process table. What ends meanwhile is left out.
func processes() (map[int]process, error) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	table := make(map[int]process, len(dirs))
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			return nil, fmt.Errorf("list processes: %w", err)
		}
		stat, err := os.ReadFile(filepath.Join(dir, "stat"))
		if err != nil {
			continue
		}
		args, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil {
			continue
		}
		p, err := parseStat(stat)
		if err != nil {
			return nil, fmt.Errorf("read the state of process %d: %w", pid, err)
		}
		p.args = strings.Split(strings.TrimRight(string(args), "\x00"), "\x00")
		table[pid] = p
	}
	return table, nil
}

// parseStat reads the parent and the processor time out of /proc/PID/stat.
func parseStat(stat []byte) (process, error) {
	// The name in parentheses may hold anything; fields count from its end.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	const parent, user, system = 4 - 3, 14 - 3, 15 - 3
	if len(fields) <= system {
		return process{}, fmt.Errorf("it has %d fields", len(fields))
	}
	var n [3]int64
	for i, field := range []int{parent, user, system} {
		v, err := strconv.ParseInt(string(fields[field]), 10, 64)
		if err != nil {
			return process{}, err
		}
		n[i] = v
	}
	return process{parent: int(n[0]), cpu: time.Duration(n[1]+n[2]) * tick}, nil
}

// descendants returns all processes below pid, sorted.
func descendants(table map[int]process, pid int) []int {
	var all []int
	for child, p := range table {
		if p.parent == pid {
			all = append(append(all, child), descendants(table, child)...)
		}
	}
	slices.Sort(all)
	return all
}

// memory is what one address space holds, in bytes, as smaps_rollup says it.
// PSS shares each page out among the address spaces that map it.
type memory struct {
	rss, pss, anon, file, shmem, private float64
}

func (m memory) plus(o memory) memory {
	return memory{m.rss + o.rss, m.pss + o.pss, m.anon + o.anon, m.file + o.file, m.shmem + o.shmem, m.private + o.private}
}

// memoryOf reads the memory of a process.
func memoryOf(pid int) (memory, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return memory{}, fmt.Errorf("read the memory of process %d: %w", pid, err)
	}
	return parseRollup(string(text))
}

func parseRollup(text string) (memory, error) {
	kb := make(map[string]float64)
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) != 3 || f[2] != "kB" {
			continue
		}
		v, err := strconv.ParseFloat(f[1], 64)
		if err != nil {
			return memory{}, fmt.Errorf("read smaps_rollup: %w", err)
		}
		kb[strings.TrimSuffix(f[0], ":")] = v * 1024
	}
	for _, name := range []string{"Rss", "Pss", "Pss_Anon", "Pss_File", "Pss_Shmem", "Private_Clean", "Private_Dirty"} {
		if _, ok := kb[name]; !ok {
			return memory{}, errors.New("read smaps_rollup: it lacks " + name)
		}
	}
	return memory{
		rss: kb["Rss"], pss: kb["Pss"], anon: kb["Pss_Anon"], file: kb["Pss_File"], shmem: kb["Pss_Shmem"],
		private: kb["Private_Clean"] + kb["Private_Dirty"],
	}, nil
}

// kcmpVM asks kcmp(2) whether two processes share their memory.
const kcmpVM = 1

// addressSpaces leaves out the processes that share the memory of an earlier
// one: their rollups tell the same pages again.
func addressSpaces(pids []int) ([]int, error) {
	var distinct []int
	for _, pid := range pids {
		known := false
		for _, other := range distinct {
			order, _, errno := unix.Syscall6(unix.SYS_KCMP, uintptr(other), uintptr(pid), kcmpVM, 0, 0, 0)
			if errno != 0 {
				return nil, fmt.Errorf("compare the memory of processes %d and %d: %w", other, pid, errno)
			}
			if known = order == 0; known {
				break
			}
		}
		if !known {
			distinct = append(distinct, pid)
		}
	}
	return distinct, nil
}

// memfds returns how many bytes the memory files of a process hold, whether
// mapped or not.
func memfds(pid int) (float64, error) {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, fmt.Errorf("list the files of process %d: %w", pid, err)
	}
	seen := make(map[uint64]bool)
	sum := 0.0
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if target, err := os.Readlink(path); err != nil || !strings.HasPrefix(target, "/memfd:") {
			continue
		}
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			return 0, fmt.Errorf("look at a memory file of process %d: %w", pid, err)
		}
		if !seen[st.Ino] {
			seen[st.Ino] = true
			sum += float64(st.Blocks) * 512
		}
	}
	return sum, nil
}

// threadTime is the time that the threads of a process have run, from the
// scheduler's own clock, which counts nanoseconds.
func threadTime(pid int) (time.Duration, error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(files) == 0 {
		return 0, errors.Join(fmt.Errorf("process %d shows no threads", pid), err)
	}
	var sum time.Duration
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			continue // a thread that has ended
		}
		var ran int64
		if _, err := fmt.Sscan(string(text), &ran); err != nil {
			return 0, fmt.Errorf("read %s: %w", f, err)
		}
		sum += time.Duration(ran)
	}
	return sum, nil
}
