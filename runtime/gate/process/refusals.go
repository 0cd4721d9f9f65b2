package process

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"mediasandbox/runtime/gate/internal/handover"
	"mediasandbox/runtime/sandbox"
)

// Bounds of the refusal log. A half is emptied before it is filled again, so
// the log never takes more than twice refusalHalf bytes.
const (
	refusalHalf  = 256 << 10
	refusalRate  = 20 // lines a second
	refusalBurst = 200
)

// refusalLog writes a line for every refusal, as its rate allows. It has two
// files and fills them in turn.
type refusalLog struct {
	limit *rate.Limiter

	mu         sync.Mutex
	files      [2]*os.File
	current    int
	size       int64
	suppressed uint64
}

// newRefusalLog goes on in the half that was written last.
func newRefusalLog(files [2]*os.File) (*refusalLog, error) {
	l := &refusalLog{files: files, limit: rate.NewLimiter(refusalRate, refusalBurst)}
	var latest time.Time
	for i, f := range files {
		st, err := f.Stat()
		if err != nil {
			return nil, fmt.Errorf("open the refusal log: %w", err)
		}
		if st.Size() > 0 && st.ModTime().After(latest) {
			l.current, l.size, latest = i, st.Size(), st.ModTime()
		}
	}
	return l, nil
}

// add logs a refusal; proto is "tcp", "udp", "icmp", "dns" or "ip".
func (l *refusalLog) add(proto string, dst netip.AddrPort, name, rule string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.limit.Allow() {
		l.suppressed++
		return nil
	}
	line, err := json.Marshal(sandbox.NetworkRefusal{
		Time:       time.Now().UTC().Format(handover.TimeFormat),
		Protocol:   proto,
		Addr:       dst.Addr(),
		Port:       dst.Port(),
		Name:       name,
		Rule:       rule,
		Suppressed: l.suppressed,
	})
	if err != nil {
		return fmt.Errorf("log a refusal: %w", err)
	}
	line = append(line, '\n')
	if l.size > 0 && l.size+int64(len(line)) > refusalHalf {
		l.current, l.size = 1-l.current, 0
		if err := l.files[l.current].Truncate(0); err != nil {
			return fmt.Errorf("log a refusal: %w", err)
		}
	}
	n, err := l.files[l.current].Write(line)
	l.size += int64(n)
	if err != nil {
		return fmt.Errorf("log a refusal: %w", err)
	}
	l.suppressed = 0
	return nil
}
