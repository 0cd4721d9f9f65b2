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

	"mediasandbox/runtime/gate/internal/handover"
)

// Refusal is one flow or name that a gate refused, and the rule that did it.
type Refusal = handover.Refusal

// Refusals returns the last refusals of a network, oldest first. The gate
// bounds how many there are, in rate and in number; it is empty for a network
// that has no gate.
func (m *Manager) Refusals(id string) ([]Refusal, error) {
	if err := checkID(id); err != nil {
		return nil, fmt.Errorf("read refusals: %w", err)
	}
	var list []Refusal
	for _, name := range handover.FlowNames {
		f, err := os.Open(filepath.Join(m.gatePath(id), name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read refusals: %w", err)
		}
		for sc := bufio.NewScanner(f); sc.Scan(); {
			var r Refusal
			// The file may end in half a line, which is not there yet. The
			// gate is not trusted to write only whole ones.
			if json.Unmarshal(sc.Bytes(), &r) == nil {
				list = append(list, r)
			}
		}
		if err := f.Close(); err != nil {
			return nil, fmt.Errorf("read refusals: %w", err)
		}
	}
	slices.SortStableFunc(list, func(a, b Refusal) int { return cmp.Compare(a.Time, b.Time) })
	return list, nil
}
