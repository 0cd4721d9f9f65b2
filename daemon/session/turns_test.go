package session

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestTurnClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		chat := ChatRecord{Turn: &TurnRecord{ID: "t1", Budget: 210 * time.Second}}
		check := func(used time.Duration) {
			t.Helper()
			if got := chat.Turn.used(now()); got != used {
				t.Errorf("used %s, want %s", got, used)
			}
			if got, want := chat.Turn.left(now()), max(0, 210*time.Second-used); got != want {
				t.Errorf("left %s, want %s", got, want)
			}
		}
		time.Sleep(time.Hour) // nothing runs
		check(0)
		chat.work(1, now())
		time.Sleep(50 * time.Second)
		check(50 * time.Second)
		chat.work(1, now()) // two at once count once
		time.Sleep(50 * time.Second)
		chat.work(-1, now())
		time.Sleep(10 * time.Second)
		chat.work(-1, now())
		time.Sleep(time.Hour)
		check(110 * time.Second)
		chat.work(1, now())
		time.Sleep(100 * time.Second)
		check(210 * time.Second)
		time.Sleep(time.Second)
		check(211 * time.Second)
	})
}

func TestLanes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const k = "chat"
		l := newLanes(1)
		if err := l.wait(t.Context(), l.join(k, "first")); err != nil {
			t.Fatal(err)
		}
		other := l.join("other", "x")
		if err := l.wait(t.Context(), other); err != nil {
			t.Fatalf("another chat's lane: %v", err)
		}
		second, third := l.join(k, "second"), l.join(k, "third")
		if l.place(k, "second") != 1 || l.place(k, "third") != 2 || l.place(k, "first") != 0 {
			t.Error("the queue is out of order")
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errCanceled)
		if err := l.wait(ctx, second); !errors.Is(err, errCanceled) {
			t.Errorf("a canceled wait: %v", err)
		}
		l.leave(k)
		if err := l.wait(t.Context(), third); err != nil {
			t.Fatal(err)
		}
		l.leave(k)
		l.leave("other")
		if len(l.running) != 0 || len(l.waiting) != 0 {
			t.Errorf("left behind: %v %v", l.running, l.waiting)
		}
	})
}

func TestStates(t *testing.T) {
	for from, tos := range moves {
		if from.Ended() {
			t.Errorf("%s is an end and has moves", from)
		}
		for _, to := range tos {
			rec := CommandRecord{}
			rec.State = from
			if err := move(&rec, to, time.Now()); err != nil || rec.State != to || to.Ended() != (rec.EndedAt != nil) {
				t.Errorf("%s to %s: %v, %+v", from, to, err, rec)
			}
			if to.Ended() {
				if err := move(&rec, from, time.Now()); err == nil {
					t.Errorf("%s came back to %s", to, from)
				}
			}
		}
	}
}
