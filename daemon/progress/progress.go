// Package progress reads how far a command's media work is from what its
// programs print: ffmpeg's line of statistics and its -progress report,
// HyperFrames' report, and a line that any script may print for itself:
//
//	@progress {"percent": 40, "frame": 120, "fps": 30, "speed": 1.5, "eta": 3.2, "stage": "encode"}
//
// What is read comes from hostile processes: lines and numbers are bounded, and
// nothing is decided by them.
//
// Start reading at Reader.Write.
package progress

import (
	"bytes"
	"math"

	"mediasandbox/daemon/api"
)

// maxLine bounds a line that is looked at, in bytes.
const maxLine = 2 << 10

// Reader follows the output of one command. It is not safe for concurrent use.
type Reader struct {
	limits limits
	ffmpeg ffmpeg
	lines  map[string]*line
	last   api.CommandProgress
	known  bool
}

// line is what a stream's current line holds so far.
type line struct {
	text []byte
	next int64 // offset in the stream of what comes next
}

// New returns a reader for a command that was written as words: its argv, or the
// text of its source. They tell how much of its inputs ffmpeg was asked for.
func New(words []string) *Reader {
	return &Reader{limits: readLimits(words), lines: make(map[string]*line)}
}

// Write takes what a stream, stdout or stderr, holds from an offset on, and
// tells whether the progress changed. What was seen before is passed over.
func (r *Reader) Write(stream string, offset int64, data []byte) bool {
	l := r.lines[stream]
	if l == nil {
		l = new(line)
		r.lines[stream] = l
	}
	if seen := l.next - offset; seen > 0 {
		data = data[min(seen, int64(len(data))):]
	} else if seen < 0 {
		l.text = l.text[:0] // a part of the stream was dropped
	}
	l.next = max(l.next, offset) + int64(len(data))
	changed := false
	for len(data) > 0 {
		end := bytes.IndexAny(data, "\r\n")
		part := data
		if end >= 0 {
			part = data[:end]
		}
		l.text = append(l.text, part[:min(len(part), maxLine-len(l.text))]...)
		if end < 0 {
			break
		}
		changed = r.read(l.text) || changed
		l.text, data = l.text[:0], data[end+1:]
	}
	return changed
}

// Last returns the latest progress, and whether there was any.
func (r *Reader) Last() (api.CommandProgress, bool) { return r.last, r.known }

// read looks at one whole line.
func (r *Reader) read(text []byte) bool {
	p, ok := readReport(text)
	if !ok {
		p, ok = r.ffmpeg.read(text, r.limits)
	}
	if !ok {
		return false
	}
	p.Percent, p.ETA, p.FPS, p.Speed = sane(p.Percent, 100), sane(p.ETA, maxETA), saneValue(p.FPS), saneValue(p.Speed)
	r.last, r.known = p, true
	return true
}

// maxETA bounds a remaining time, in seconds: a command runs at most 600.
const maxETA = 24 * 3600

// sane bounds a number that may be absent to 0…most; what is no number is absent.
func sane(v *float64, most float64) *float64 {
	if v == nil || math.IsNaN(*v) || math.IsInf(*v, 0) {
		return nil
	}
	bounded := min(max(*v, 0), most)
	return &bounded
}

func saneValue(v float64) float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
		return 0
	}
	return v
}
