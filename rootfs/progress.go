package rootfs

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// oneAtATime is a Writer for lines that more than one goroutine writes.
type oneAtATime struct {
	mu  sync.Mutex
	out io.Writer
}

func (w *oneAtATime) Write(data []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.out.Write(data)
}

// progress prints one line for each step of a build, with what it took.
type progress struct {
	out   io.Writer
	now   func() time.Time
	total int
	done  int
}

// step runs one step and reports it.
func (p *progress) step(name string, run func() error) error {
	p.done++
	start := p.now()
	fmt.Fprintf(p.out, "[%d/%d] %s\n", p.done, p.total, name)
	if err := run(); err != nil {
		return err
	}
	fmt.Fprintf(p.out, "[%d/%d] %s: %.1f s\n", p.done, p.total, name, p.now().Sub(start).Seconds())
	return nil
}

// note prints a line that belongs to no step.
func (p *progress) note(format string, args ...any) {
	fmt.Fprintf(p.out, format+"\n", args...)
}

// relay writes a program's output to log, and those of its lines that begin
// with prefix also to out.
type relay struct {
	log, out io.Writer
	prefix   string
	partial  []byte
}

func (r *relay) Write(data []byte) (int, error) {
	r.partial = append(r.partial, data...)
	for {
		line, rest, found := bytes.Cut(r.partial, []byte("\n"))
		if !found {
			break
		}
		if text, ok := strings.CutPrefix(string(line), r.prefix); ok {
			fmt.Fprintf(r.out, "      %s\n", text)
		}
		r.partial = rest
	}
	return r.log.Write(data)
}

// tail returns the last lines of a file, for an error message.
func tail(path string, lines int) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Sprintf("(%v)", err)
	}
	all := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n  ")
}
