package progress

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"unicode"

	"mediasandbox/daemon/api"
)

// Prefixes of lines that carry a report as JSON.
const (
	scriptPrefix      = "@progress "
	hyperframesPrefix = "@hf-progress "
)

// maxStage bounds the name of a stage, in bytes.
const maxStage = 80

// report holds what both kinds of lines may say.
type report struct {
	By      string   `json:"by"`
	Percent *float64 `json:"percent"`
	Pct     *float64 `json:"pct"`
	Frame   float64  `json:"frame"`
	FPS     float64  `json:"fps"`
	Speed   float64  `json:"speed"`
	Time    float64  `json:"time"`
	ETA     *float64 `json:"eta"`
	Stage   any      `json:"stage"`
}

// readReport reads a line that is a report as JSON.
func readReport(text []byte) (api.CommandProgress, bool) {
	by, rest := api.ProgressByScript, []byte(nil)
	switch {
	case bytes.HasPrefix(text, []byte(scriptPrefix)):
		rest = text[len(scriptPrefix):]
	case bytes.HasPrefix(text, []byte(hyperframesPrefix)):
		by, rest = api.ProgressByHyperFrames, text[len(hyperframesPrefix):]
	default:
		return api.CommandProgress{}, false
	}
	var said report
	if err := json.Unmarshal(rest, &said); err != nil {
		return api.CommandProgress{}, false
	}
	if said.Percent == nil {
		said.Percent = said.Pct
	}
	for _, known := range []api.ProgressBy{api.ProgressByFFmpeg, api.ProgressByHyperFrames} {
		if said.By == string(known) {
			by = known
		}
	}
	return api.CommandProgress{
		By: by, Percent: said.Percent, Frame: frames(said.Frame), FPS: said.FPS, Speed: said.Speed, Time: saneValue(said.Time), ETA: said.ETA, Stage: stage(said.Stage),
	}, true
}

func frames(n float64) int64 {
	if math.IsNaN(n) || n < 0 || n > 1e15 {
		return 0
	}
	return int64(n)
}

// stage is a stage's name as a terminal may show it.
func stage(v any) string {
	s, _ := v.(string)
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, s)
	return strings.ToValidUTF8(s[:min(len(s), maxStage)], "")
}
