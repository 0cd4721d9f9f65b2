package gate

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"mediasandbox/runtime/gate/internal/handover"
	"mediasandbox/runtime/sandbox"
)

// Refusals implements sandbox.NetworkControl. The gate bounds how many there
// are, in rate and in number; a network that has no gate has none.
func (m *Manager) Refusals(id string, after time.Time) ([]sandbox.NetworkRefusal, error) {
	if err := checkID(id); err != nil {
		return nil, fmt.Errorf("read refusals: %w", err)
	}
	var list []sandbox.NetworkRefusal
	for _, name := range handover.FlowNames {
		f, err := os.Open(filepath.Join(m.gatePath(id), name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read refusals: %w", err)
		}
		news, err := readRefusals(f, after)
		list = append(list, news...)
		if err := errors.Join(err, f.Close()); err != nil {
			return nil, fmt.Errorf("read refusals: %w", err)
		}
	}
	slices.SortStableFunc(list, func(a, b sandbox.NetworkRefusal) int { return cmp.Compare(a.Time, b.Time) })
	return list, nil
}

// clockGrain is how far a file's time may lag behind what is in it.
const clockGrain = time.Second

// readRefusals reads the lines of a half of the log that are later than after.
func readRefusals(f *os.File, after time.Time) (list []sandbox.NetworkRefusal, err error) {
	st, err := f.Stat()
	if err != nil || st.ModTime().Before(after.Add(-clockGrain)) {
		return nil, err
	}
	from := after.UTC().Format(handover.TimeFormat)
	for sc := bufio.NewScanner(f); sc.Scan(); {
		var r sandbox.NetworkRefusal
		// The file may end in half a line, which is not there yet. The gate
		// is not trusted to write only whole ones.
		if json.Unmarshal(sc.Bytes(), &r) == nil && r.Time > from {
			list = append(list, r)
		}
	}
	return list, nil
}
