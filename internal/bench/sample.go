package main

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// sample is a set of measurements in one unit.
type sample []float64

// add notes a duration in milliseconds.
func (s *sample) add(d time.Duration) { *s = append(*s, float64(d)/float64(time.Millisecond)) }

// quantile returns the value below which the part q of the sample lies,
// interpolated between neighbours; NaN of an empty sample.
func (s sample) quantile(q float64) float64 {
	if len(s) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(s))
	at := q * float64(len(sorted)-1)
	low := int(math.Floor(at))
	high := int(math.Ceil(at))
	return sorted[low] + (at-float64(low))*(sorted[high]-sorted[low])
}

func (s sample) p50() float64 { return s.quantile(0.5) }
func (s sample) p95() float64 { return s.quantile(0.95) }

// mean returns the arithmetic mean; NaN of an empty sample.
func (s sample) mean() float64 {
	sum := 0.0
	for _, v := range s {
		sum += v
	}
	return sum / float64(len(s))
}

// spread is the middle half of the sample.
func (s sample) spread() string {
	return number(s.quantile(0.25)) + "–" + number(s.quantile(0.75))
}

// number writes three significant digits, and no more than that.
func number(v float64) string {
	switch a := math.Abs(v); {
	case math.IsNaN(v):
		return "–"
	case a >= 100:
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}
