package progress

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"mediasandbox/daemon/api"
)

// ffmpeg is what is known of the ffmpeg that prints.
type ffmpeg struct {
	length float64           // seconds of its longest input; 0 if it did not say
	live   bool              // an input has no length, or is repeated without an end
	report map[string]string // the -progress report in the making
}

// maxKeys bounds a line of statistics.
const maxKeys = 64

// reportKeys are what is kept of a -progress report.
var reportKeys = []string{"frame", "fps", "out_time", "speed"}

// read looks at one line of ffmpeg's.
func (f *ffmpeg) read(text []byte, l limits) (api.CommandProgress, bool) {
	text = bytes.TrimSpace(text)
	if !bytes.ContainsRune(text, '=') && !bytes.HasPrefix(text, []byte("Duration: ")) && !bytes.HasPrefix(text, []byte("ffmpeg version ")) {
		return api.CommandProgress{}, false // most lines of most programs
	}
	trimmed := string(text)
	switch {
	case strings.HasPrefix(trimmed, "ffmpeg version "): // another one begins
		*f = ffmpeg{}
	case strings.HasPrefix(trimmed, "Duration: "):
		f.input(trimmed)
	case strings.HasPrefix(trimmed, "frame=") || strings.HasPrefix(trimmed, "size="):
		if values := statistics(trimmed); values["time"] != "" {
			return f.progress(values, values["time"], l)
		}
	}
	key, value, ok := strings.Cut(trimmed, "=")
	if !ok || strings.ContainsAny(key, " \t") {
		return api.CommandProgress{}, false
	}
	if key == "progress" && (value == "continue" || value == "end") {
		report := f.report
		f.report = nil
		if time, ok := report["out_time"]; ok {
			return f.progress(report, time, l)
		}
		return api.CommandProgress{}, false
	}
	if slices.Contains(reportKeys, key) {
		if f.report == nil {
			f.report = make(map[string]string)
		}
		f.report[key] = strings.TrimSpace(value)
	}
	return api.CommandProgress{}, false
}

// input notes the length of an input: "Duration: 00:00:10.03, start: …".
func (f *ffmpeg) input(line string) {
	value, _, _ := strings.Cut(strings.TrimPrefix(line, "Duration: "), ",")
	seconds, ok := duration(value)
	if !ok {
		f.live = true
		return
	}
	f.length = max(f.length, seconds)
}

// statistics takes "frame=  123 fps= 30 q=28.0 time=00:00:04.10 speed=1.2x"
// apart.
func statistics(line string) map[string]string {
	values := make(map[string]string)
	key := ""
	for _, word := range strings.Fields(line) {
		name, value, ok := strings.Cut(word, "=")
		if !ok {
			if key != "" && values[key] == "" {
				values[key] = word
			}
			continue
		}
		if len(values) == maxKeys {
			break
		}
		key = name
		values[key] = value
	}
	return values
}

// progress puts a report together; time is how much of the result is made.
func (f *ffmpeg) progress(values map[string]string, time string, l limits) (api.CommandProgress, bool) {
	made, ok := duration(time)
	if !ok {
		return api.CommandProgress{}, false // N/A: nothing is made yet
	}
	p := api.CommandProgress{
		By: api.ProgressByFFmpeg, Time: made,
		Frame: frames(number(values["frame"])), FPS: number(values["fps"]), Speed: number(strings.TrimSuffix(values["speed"], "x")),
	}
	if total := l.result(f.length); total > 0 && !f.live {
		done := min(made/total, 1)
		percent := 100 * done
		p.Percent = &percent
		if p.Speed > 0 {
			eta := total * (1 - done) / p.Speed
			p.ETA = &eta
		}
	}
	return p, true
}

// number reads a number; what is none is 0.
func number(s string) float64 {
	v, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	if err != nil {
		return 0
	}
	return saneValue(v)
}

// duration reads a time in ffmpeg's way, [[HH:]MM:]SS[.frac] or with a unit of
// s, ms or us, in seconds. It may be negative before the first frame.
func duration(s string) (float64, bool) {
	s = strings.TrimSpace(s)
	scale := 1.0
	for _, unit := range []struct {
		name  string
		scale float64
	}{{"us", 1e-6}, {"ms", 1e-3}, {"s", 1}} {
		if rest, ok := strings.CutSuffix(s, unit.name); ok {
			s, scale = rest, unit.scale
			break
		}
	}
	s, negative := strings.CutPrefix(s, "-")
	parts := strings.Split(s, ":")
	if len(parts) > 3 || (len(parts) > 1 && scale != 1) {
		return 0, false
	}
	total := 0.0
	for _, part := range parts {
		v, err := strconv.ParseFloat(part, 64)
		if err != nil || v < 0 || v > 1e9 {
			return 0, false
		}
		total = total*60 + v
	}
	if negative {
		total = 0
	}
	return total * scale, true
}
