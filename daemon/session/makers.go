package session

import (
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"mediasandbox/daemon/api"
	"mediasandbox/uploader"
)

// span is a command's time in its sandbox.
type span struct {
	command CommandRecord
	from    time.Time
	// to is zero while the command, or what it left in the background, runs.
	to time.Time
	// cells is set once one came of it.
	cells bool
}

const (
	// maxSpans bounds what is remembered of a sandbox's commands.
	maxSpans = 256
	// clockSlack is how far a file's time may be behind: kernels stamp files with
	// the time of the last tick.
	clockSlack = 10 * time.Millisecond
)

// began notes that a command runs in the sandbox from now on.
func (l *live) began(rec CommandRecord) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.spans = append(l.spans, span{command: rec, from: *rec.StartedAt})
	if len(l.spans) <= maxSpans {
		return
	}
	if i := slices.IndexFunc(l.spans, func(s span) bool { return !s.to.IsZero() }); i >= 0 {
		l.spans = slices.Delete(l.spans, i, i+1)
	}
}

// wrote notes that the host wrote a file or a tree, if that is below /outputs.
func (l *live) wrote(at location) {
	if at.dir != "outputs" {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.puts == nil || len(l.puts) >= maxSpans {
		l.puts = make(map[string]time.Time)
	}
	l.puts[at.rest] = time.Now()
}

// wasPut tells whether it was the host that changed a file last.
func (l *live) wasPut(p uploader.Path, changed time.Time) bool {
	for name := string(p); name != "."; name = path.Dir(name) {
		if at, ok := l.puts[name]; ok && !changed.After(at) {
			return true
		}
	}
	return false
}

// finished notes that a command has ended.
func (l *live) finished(command string, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.spans {
		if l.spans[i].command.ID == command {
			l.spans[i].to = at
		}
	}
}

// spansIn are the times of a sandbox's commands as they are recorded, for a
// sandbox that an earlier daemon had.
func (e *Engine) spansIn(rec SandboxRecord) ([]span, error) {
	var recs []CommandRecord
	err := e.cfg.Store.View(func(tx Tx) (err error) {
		recs, err = tx.Commands(rec.Chat)
		return err
	})
	var spans []span
	for _, c := range recs {
		if c.Sandbox != rec.Spec.ID || c.StartedAt == nil {
			continue
		}
		s := span{command: c, from: *c.StartedAt}
		if c.EndedAt != nil && !(c.Keep && c.Background > 0) {
			s.to = *c.EndedAt
		}
		spans = append(spans, s)
	}
	return spans, err
}

// makerOf tells which command made a file that last changed at that moment: the
// one that ran then. Of several it is the one whose text names the file, or else
// /outputs, or else the one that began last. What changed while none ran, such
// as a file that was put there, has none.
func (l *live) makerOf(p uploader.Path, changed time.Time) CommandRecord {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.wasPut(p, changed) {
		return CommandRecord{}
	}
	var maker CommandRecord
	best := -1
	for _, s := range l.spans {
		if changed.Add(clockSlack).Before(s.from) || !s.to.IsZero() && changed.After(s.to) {
			continue
		}
		score := 0
		switch text := s.command.text(); {
		case strings.Contains(text, path.Base(string(p))):
			score = 2
		case strings.Contains(text, "outputs"):
			score = 1
		}
		if score >= best {
			best, maker = score, s.command
		}
	}
	return maker
}

// endsWith tells which outputs are to be published when a command ends. Those of
// commands that still run are not: their writers may come back to them.
func (l *live) endsWith(command string) func(uploader.Path, uploader.Identity) bool {
	others := make(map[string]bool)
	l.mu.Lock()
	for _, s := range l.spans {
		if s.to.IsZero() && s.command.ID != command {
			others[s.command.ID] = true
		}
	}
	l.mu.Unlock()
	return func(p uploader.Path, id uploader.Identity) bool {
		return len(others) == 0 || !others[l.makerOf(p, time.Unix(0, id.CTime)).ID]
	}
}

// text is all that a command says.
func (c CommandRecord) text() string {
	return strings.Join(append([]string{c.Shell, c.Python}, slices.Concat(c.Argv, c.Args)...), "\n")
}

// work is what an output is put down to.
type work struct {
	chat    ChatKey
	sandbox string
	command CommandRecord
	inputs  map[string]Input
}

// work returns what the sandbox's outputs have in common.
func (l *live) work() work {
	l.mu.Lock()
	defer l.mu.Unlock()
	return work{chat: l.record.Chat, sandbox: l.record.Spec.ID, inputs: maps.Clone(l.record.Inputs)}
}

// by is the same work, done by a command.
func (w work) by(command CommandRecord) work {
	w.command = command
	return w
}

// pill says what kind of work made a file of that type.
func (w work) pill(contentType string) api.Pill {
	if w.command.Kind != "" {
		return w.command.Kind
	}
	kind, _, _ := strings.Cut(contentType, "/")
	switch kind {
	case "video":
		return api.PillVideoEdit
	case "audio":
		return api.PillAudioEdit
	case "image":
		if w.fromVideo() {
			return api.PillFrameExtract
		}
		return api.PillImageEdit
	}
	return api.PillFile
}

// fromVideo tells whether the command worked on a video: one that it declared
// as an input, or else one that its text names.
func (w work) fromVideo() bool {
	c := w.command
	text := c.text()
	for name, in := range w.inputs {
		if !strings.HasPrefix(in.ContentType, "video/") {
			continue
		}
		if slices.Contains(c.Inputs, name) || strings.Contains(text, name) {
			return true
		}
	}
	return false
}
