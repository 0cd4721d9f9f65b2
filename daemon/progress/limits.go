package progress

import "strings"

// limits is what an ffmpeg command asks for of its inputs, in seconds.
type limits struct {
	from, length float64 // -ss; -t, or -to less -ss; 0 if not given
	// unknown says that the length of the result does not follow from the
	// command: several ffmpegs, pictures, filters that change time.
	unknown bool
}

// changers are words after which a result is not as long as its longest input.
var changers = []string{
	"setpts", "atempo", "concat", "xfade", "tpad", "loop", "-loop", "-stream_loop", "trim", "atrim", "-shortest", "shortest", "-frames:v", "-vframes", "-frames", "lavfi", "reverse", "-itsscale", "minterpolate", "segment", "select",
}

// readLimits reads a command's words. In a source they stand between quotes,
// commas and brackets.
func readLimits(words []string) limits {
	var l limits
	var to float64
	var ffmpegs, inputs int
	var fromInput, toInput int // how many inputs were named before
	var fields []string
	for _, w := range words {
		fields = append(fields, strings.FieldsFunc(w, func(r rune) bool { return strings.ContainsRune(" \t\n'\"`,()[]{}=;", r) })...)
	}
	set := func(into *float64, i int) {
		if i+1 == len(fields) || *into != 0 {
			l.unknown = true
			return
		}
		v, ok := duration(fields[i+1])
		if !ok {
			l.unknown = true
			return
		}
		*into = v
	}
	for i, field := range fields {
		switch field {
		case "ffmpeg":
			ffmpegs++
		case "-ss":
			set(&l.from, i)
			fromInput = inputs
		case "-i":
			inputs++
		case "-t":
			set(&l.length, i)
		case "-to":
			set(&to, i)
			toInput = inputs
		default:
			for _, c := range changers {
				l.unknown = l.unknown || field == c
			}
		}
	}
	switch {
	case to > 0 && toInput > fromInput: // the result's clock began at -ss
		l.length = to
	case to > 0:
		l.length = to - l.from
	}
	// Two ffmpegs in one source can't be told apart; without limits each is as
	// long as its own inputs.
	l.unknown = l.unknown || l.length < 0 || (ffmpegs > 1 && l.length+l.from > 0)
	return l
}

// result is how long the result of inputs of at most this length will be, or 0.
func (l limits) result(longest float64) float64 {
	switch {
	case l.unknown:
		return 0
	case l.length > 0 && longest > 0:
		return min(l.length, max(longest-l.from, 0))
	case l.length > 0:
		return l.length
	}
	return max(longest-l.from, 0)
}
