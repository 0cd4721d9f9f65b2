package main

import (
	"math"
	"testing"
	"time"
)

func TestQuantile(t *testing.T) {
	s := sample{4, 1, 3, 2, 5}
	for q, want := range map[float64]float64{0: 1, 0.25: 2, 0.5: 3, 0.95: 4.8, 1: 5} {
		if got := s.quantile(q); math.Abs(got-want) > 1e-9 {
			t.Errorf("quantile %g of %v is %g, not %g", q, s, got, want)
		}
	}
	if s[0] != 4 {
		t.Errorf("the sample was sorted in place: %v", s)
	}
	if got := (sample{}).p50(); !math.IsNaN(got) {
		t.Errorf("the median of nothing is %g", got)
	}
}

func TestAddCountsMilliseconds(t *testing.T) {
	var s sample
	s.add(1500 * time.Microsecond)
	if s[0] != 1.5 {
		t.Errorf("1.5 ms were noted as %g", s[0])
	}
}

func TestNumberHasThreeDigits(t *testing.T) {
	for v, want := range map[float64]string{0.333: "0.33", 7: "7.00", 12.34: "12.3", 123.4: "123", -12.34: "-12.3", math.NaN(): "–"} {
		if got := number(v); got != want {
			t.Errorf("number(%g) is %q, not %q", v, got, want)
		}
	}
}
