package session

import (
	"path"
	"slices"
	"strings"

	"mediasandbox/daemon/api"
)

// maxWanted bounds the patterns of a sandbox.
const maxWanted = 64

// checkPublish refuses patterns that can't be meant.
func checkPublish(patterns []string) error {
	if len(patterns) > api.MaxPublish {
		return api.Errorf(api.CodeInvalid, "publish has %d patterns, the limit is %d", len(patterns), api.MaxPublish)
	}
	for _, p := range patterns {
		if _, err := path.Match(p, ""); err != nil || p == "" || len(p) > 255 {
			return api.Errorf(api.CodeInvalid, "publish: %q is not a pattern of a file's name", p).
				WithHint("write it like '*.part' or '.hidden'; it is matched with each name that looks temporary")
		}
	}
	return nil
}

// want adds a command's patterns to those of its sandbox, for a later daemon
// too.
func (e *Engine) want(l *live, patterns []string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	wanted := slices.Clone(l.record.Publish)
	for _, p := range patterns {
		if !slices.Contains(wanted, p) {
			wanted = append(wanted, p)
		}
	}
	if len(wanted) == len(l.record.Publish) {
		return nil
	}
	if len(wanted) > maxWanted {
		return api.Errorf(api.CodeInvalid, "the commands of this sandbox want %d patterns of names published, the limit is %d", len(wanted), maxWanted).
			WithHint("use fewer and wider patterns")
	}
	l.record.Publish = wanted
	return e.recordSandbox(l)
}

// wantsAll tells whether all patterns were asked for already.
func (l *live) wantsAll(patterns []string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !slices.ContainsFunc(patterns, func(p string) bool { return !slices.Contains(l.record.Publish, p) })
}

// wanted tells whether a command asked for a file although its name looks
// temporary. What the product itself is still writing is never meant.
func (l *live) wanted(name string) bool {
	if strings.HasPrefix(name, putPrefix) {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.record.Publish, func(pattern string) bool {
		ok, err := path.Match(pattern, name)
		return ok && err == nil
	})
}
