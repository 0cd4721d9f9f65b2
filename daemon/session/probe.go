package session

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"mediasandbox/daemon/api"
	"mediasandbox/uploader"
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
	HasAlpha    bool    `json:"has_alpha"`
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

// findFacts asks the sandbox what new cells are, one batch after the other.
func (e *Engine) findFacts(l *live, cells []CellRecord) {
	cells = slices.DeleteFunc(cells, func(c CellRecord) bool { return c.Probed })
	if len(cells) == 0 {
		return
	}
	l.facts.Go(func() {
		l.factsSlots <- struct{}{}
		defer func() { <-l.factsSlots }()
		paths := make([]string, len(cells))
		for i, c := range cells {
			paths[i] = guestPath(c.File.Path)
		}
		found, err := e.probe(e.ctx, l, paths)
		if err != nil && e.ctx.Err() == nil && !l.isEnded() {
			e.log.Warn("media facts are missing", "sandbox", l.record.Spec.ID, "error", err)
		}
		for i, c := range cells {
			f, ok := found[paths[i]]
			if !ok {
				f.Error = "its media facts could not be read"
			}
			if err := e.recordFacts(c, f); err != nil {
				e.log.Error("record media facts", "chat", c.Chat, "ordinal", c.Ordinal, "error", err)
			}
		}
	})
}

// guestPath is the name that the guest knows an output by.
func guestPath(escaped string) string {
	var p uploader.Path
	if err := p.UnmarshalText([]byte(escaped)); err != nil {
		return escaped // never: it was made by MarshalText
	}
	return "/outputs/" + string(p)
}

// recordFacts adds facts to a cell, unless it was revised meanwhile.
func (e *Engine) recordFacts(of CellRecord, f facts) error {
	return e.changeCell(of.ChatKey(), of.Ordinal, func(c *CellRecord) bool {
		if c.Key != of.Key {
			return false
		}
		c.Probed = true
		if f.Error != "" {
			c.Pill, c.Note = api.PillFile, f.Error
			return true
		}
		file := &c.File
		file.Width, file.Height, file.Duration, file.FPS = f.Width, f.Height, f.Duration, f.FPS
		file.VideoCodec, file.AudioCodec, file.PixelFormat, file.HasAlpha = f.VideoCodec, f.AudioCodec, f.PixelFormat, f.HasAlpha
		return true
	})
}
