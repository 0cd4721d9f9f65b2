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
)

//go:embed probe.py
var probeSource []byte

// probeTimeout bounds one look at a batch of files.
const probeTimeout = 60 * time.Second

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
	out, err := e.ask(ctx, l.handle, helper{name: "probe", source: probeSource, stdin: bytes.NewReader(request)})
	if err != nil {
		return nil, fmt.Errorf("probe outputs: %w", err)
	}
	found := make(map[string]facts, len(paths))
	for line := range bytes.Lines(out) {
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
