package main

import (
	"testing"
	"time"
)

func TestAJobsOwnTimeIsFound(t *testing.T) {
	for i, d := range []done{
		{stdout: "1.25\n", took: 3 * time.Second},
		{stderr: "frame= 60\nbench: utime=1.9s stime=0.1s rtime=1.250s\nbench: maxrss=1kB\n", took: 3 * time.Second},
	} {
		var got times
		if err := got.add(jobs[i], d); err != nil {
			t.Fatal(err)
		}
		if got.counted[0] != 1250 || got.whole[0] != 3000 {
			t.Errorf("%s: %+v", jobs[i].what, got)
		}
		if err := got.add(jobs[i], done{stdout: "nothing"}); err == nil {
			t.Errorf("%s: a missing time went unnoticed", jobs[i].what)
		}
	}
	var whole times
	if err := whole.add(jobs[2], done{took: time.Second}); err != nil || whole.counted[0] != 1000 {
		t.Errorf("without a time of its own: %+v, %v", whole, err)
	}
}
