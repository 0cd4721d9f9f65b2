package session

import (
	"slices"
	"strings"
	"sync"

	"mediasandbox/daemon/api"
	"mediasandbox/uploader"
)

// maxSkips bounds what is remembered of a sandbox's unfit outputs.
const maxSkips = 10000

// skips collects the outputs of a sandbox that can't become cells, for the
// record of the command that ends next. Each is told once, and again when it
// has changed.
type skips struct {
	mu    sync.Mutex
	told  map[api.Skipped]uploader.Identity
	fresh []api.Skipped
}

func (k *skips) note(s uploader.Skipped) {
	k.mu.Lock()
	defer k.mu.Unlock()
	line := api.Skipped{Path: s.Path.String(), Reason: string(s.Reason)}
	if id, ok := k.told[line]; ok && id == s.Identity || len(k.fresh) >= maxSkips {
		return
	}
	if k.told == nil || len(k.told) >= maxSkips {
		k.told = make(map[api.Skipped]uploader.Identity)
	}
	k.told[line] = s.Identity
	k.fresh = append(k.fresh, line)
}

// take returns what was noted since the last call, sorted by path.
func (k *skips) take() []api.Skipped {
	k.mu.Lock()
	defer k.mu.Unlock()
	fresh := k.fresh
	k.fresh = nil
	slices.SortFunc(fresh, func(a, b api.Skipped) int {
		return strings.Compare(a.Path+"\x00"+a.Reason, b.Path+"\x00"+b.Reason)
	})
	return slices.Compact(fresh)
}
