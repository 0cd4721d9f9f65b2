package session

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"strings"
	"time"

	"mediasandbox/daemon/api"
	"mediasandbox/runtime/sandbox"
)

//go:embed probe.py
var probeSource []byte

const (
	// probeTimeout bounds one look at a batch of files.
	probeTimeout = 60 * time.Second
	// maxProbeOutput bounds what a look may say, in bytes.
	maxProbeOutput = 1 << 20
)

// facts are what the prober says of one file. It runs in the sandbox, on
// hostile media, among hostile processes: every value is checked.
type facts struct {
	Path        string  `json:"path"`
	Size        int64   `json:"size"`
	Width       int     `json:"width"`
	Height      int     `json:"height"`
	Duration    float64 `json:"duration"`
	FPS         float64 `json:"fps"`
	VideoCodec  string  `json:"video_codec"`
	AudioCodec  string  `json:"audio_codec"`
	PixelFormat string  `json:"pixel_format"`
	Error       string  `json:"error"`
}

var codecName = regexp.MustCompile(`^[a-zA-Z0-9_.-]{0,32}$`)

// Bounds of what a file may claim to be.
const (
	maxSide     = 1 << 20 // pixels
	maxDuration = 1e7     // seconds
	maxFPS      = 1e4
	maxNote     = 200 // bytes
)

// sane tells whether the facts could be true.
func (f facts) sane() bool {
	number := func(v, limit float64) bool { return !math.IsNaN(v) && v >= 0 && v <= limit }
	return f.Width >= 0 && f.Width <= maxSide && f.Height >= 0 && f.Height <= maxSide &&
		number(f.Duration, maxDuration) && number(f.FPS, maxFPS) &&
		codecName.MatchString(f.VideoCodec) && codecName.MatchString(f.AudioCodec) && codecName.MatchString(f.PixelFormat)
}

// probed tells whether files of that type have media facts.
func probed(contentType string) bool {
	return strings.HasPrefix(contentType, "image/") || strings.HasPrefix(contentType, "video/") || strings.HasPrefix(contentType, "audio/")
}

// probe asks the sandbox what the files are, by their paths below /outputs.
func (e *Engine) probe(ctx context.Context, l *live, paths []string) (map[string]facts, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	request, err := json.Marshal(paths)
	if err != nil {
		return nil, fmt.Errorf("probe outputs: %w", err)
	}
	id := newID("probe-")
	sink := &memorySink{}
	cmd := e.guestCommand(CommandRecord{Command: api.Command{
		ID: id, Dir: "/outputs", Python: string(probeSource), Script: "probe.py",
	}}, sink)
	cmd.Stdin = bytes.NewReader(request)
	p, err := l.handle.Start(ctx, id, cmd)
	if err != nil {
		return nil, fmt.Errorf("probe outputs: %w", err)
	}
	defer func() { _ = p.Forget() }() // a sandbox that is gone has forgotten already
	select {
	case <-p.Done():
	case <-ctx.Done():
		_ = p.Kill() // it dies with its sandbox at the latest
		return nil, fmt.Errorf("probe outputs: %w", context.Cause(ctx))
	}
	if st := p.Status(); st.Err != nil || st.Code != 0 {
		return nil, fmt.Errorf("probe outputs: the prober ended with code %d (%v): %s", st.Code, st.Err, sink.tail())
	}
	found := make(map[string]facts, len(paths))
	for line := range bytes.Lines(sink.out.Bytes()) {
		var f facts
		if err := json.Unmarshal(line, &f); err != nil {
			return nil, fmt.Errorf("probe outputs: the prober's answer: %w", err)
		}
		if !f.sane() {
			f = facts{Path: f.Path, Size: f.Size, Error: "its media facts make no sense"}
		}
		f.Error = f.Error[:min(len(f.Error), maxNote)]
		found[f.Path] = f
	}
	return found, nil
}

// memorySink keeps a bounded amount of output; more is dropped.
type memorySink struct{ out, err bytes.Buffer }

// Write implements sandbox.Sink.
func (m *memorySink) Write(s sandbox.Stream, _ int64, data []byte) error {
	buf := &m.out
	if s == sandbox.Stderr {
		buf = &m.err
	}
	buf.Write(data[:min(len(data), maxProbeOutput-buf.Len())])
	return nil
}

func (m *memorySink) tail() string {
	text := strings.TrimSpace(m.err.String())
	return text[max(0, len(text)-maxNote):]
}
