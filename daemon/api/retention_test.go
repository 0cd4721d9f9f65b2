package api_test

import (
	"testing"
	"time"

	"mediasandbox/daemon/api"
)

func TestRetentionExpiry(t *testing.T) {
	from := time.Date(2027, 8, 31, 10, 0, 0, 0, time.UTC)
	for r, want := range map[api.Retention]time.Time{
		api.RetentionImmediate: from,
		"1h":                   from.Add(time.Hour),
		"12h":                  from.Add(12 * time.Hour),
		"1d":                   from.AddDate(0, 0, 1),
		"90d":                  from.AddDate(0, 0, 90),
		"6mo":                  from.AddDate(0, 6, 0),
		"1y":                   time.Date(2028, 8, 31, 10, 0, 0, 0, time.UTC),
	} {
		if got := r.Expiry(from); got == nil || !got.Equal(want) {
			t.Errorf("%s from %s: %v, want %v", r, from, got, want)
		}
	}
	for _, r := range []api.Retention{api.RetentionForever, "", "4h"} {
		if got := r.Expiry(from); got != nil {
			t.Errorf("%q ends at %v", r, got)
		}
	}
	last := time.Time{}
	for _, r := range api.Retentions()[:len(api.Retentions())-1] {
		at := r.Expiry(from)
		if at == nil || !at.After(last) {
			t.Errorf("%s does not follow the one before it", r)
			continue
		}
		last = *at
	}
}
