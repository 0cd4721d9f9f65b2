package store

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/session"
	"mediasandbox/runtime/sandbox"
	"mediasandbox/uploader"
)

// model is what the store ought to hold, in plain maps.
type model struct {
	chats     map[session.ChatKey]*modelChat
	active    map[string]session.ChatKey
	sandboxes map[string]*modelSandbox
	jobs      map[string]session.JobRecord
}

type modelChat struct {
	rec      session.ChatRecord
	commands map[string]session.CommandRecord
	cells    map[int]session.CellRecord
	events   map[uint64]api.Event
	turns    map[string]session.TurnRecord
	requests map[string]session.RequestRecord
}

type modelSandbox struct {
	rec   session.SandboxRecord
	known map[uploader.Path]knownFile
}

func newModel() *model {
	return &model{
		chats: map[session.ChatKey]*modelChat{}, active: map[string]session.ChatKey{},
		sandboxes: map[string]*modelSandbox{}, jobs: map[string]session.JobRecord{},
	}
}

// clone copies everything, so that a transaction can be undone.
func (m *model) clone() *model {
	c := newModel()
	maps.Copy(c.active, m.active)
	maps.Copy(c.jobs, m.jobs)
	for k, chat := range m.chats {
		c.chats[k] = &modelChat{
			chat.rec, maps.Clone(chat.commands), maps.Clone(chat.cells), maps.Clone(chat.events), maps.Clone(chat.turns), maps.Clone(chat.requests),
		}
	}
	for id, s := range m.sandboxes {
		c.sandboxes[id] = &modelSandbox{s.rec, maps.Clone(s.known)}
	}
	return c
}

var (
	modelAccounts = []string{"uid:0", "uid:1000", "a"}
	modelIDs      = []string{"default", "a", "a.b", "ab"}
)

func pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }

func moment(r *rand.Rand) time.Time {
	return time.Date(2026, 12, 1, 0, 0, r.IntN(100000), r.IntN(1e9), time.UTC)
}

// step does one random thing to both and compares what it answers.
func step(r *rand.Rand, tx session.Tx, m *model) error {
	k := session.ChatKey{Account: pick(r, modelAccounts), ID: pick(r, modelIDs)}
	chat := m.chats[k]
	// A record of a chat that is gone is refused.
	within := func(put func() error, keep func(*modelChat)) error {
		err := put()
		if chat == nil {
			return wantNotFound(err)
		}
		keep(chat)
		return err
	}
	switch r.IntN(10) {
	case 0:
		rec := session.ChatRecord{Account: k.Account, ID: k.ID, Title: fmt.Sprint(r.IntN(10)), CreatedAt: moment(r), Ordinals: r.IntN(9)}
		if chat == nil {
			chat = &modelChat{
				commands: map[string]session.CommandRecord{}, cells: map[int]session.CellRecord{}, events: map[uint64]api.Event{},
				turns: map[string]session.TurnRecord{}, requests: map[string]session.RequestRecord{},
			}
			m.chats[k] = chat
		}
		chat.rec = rec
		return tx.PutChat(rec)
	case 1:
		if r.IntN(3) > 0 {
			return nil // else hardly anything would live
		}
		err := tx.DeleteChat(k)
		if chat == nil {
			return wantNotFound(err)
		}
		delete(m.chats, k)
		return err
	case 2, 3:
		// Ids are unique on the host, so they hold the chat's.
		rec := session.CommandRecord{Account: k.Account, Command: api.Command{
			ID: fmt.Sprint("x-", k, r.IntN(5)), Chat: k.ID, State: pick(r, []api.State{api.StateQueued, api.StateRunning, api.StateFailed, api.StateLost}),
			CreatedAt: moment(r),
		}}
		return within(func() error { return tx.PutCommand(rec) }, func(c *modelChat) {
			c.commands[rec.ID] = rec
			m.active[rec.ID] = k
			if rec.State.Ended() {
				delete(m.active, rec.ID)
			}
		})
	case 4:
		rec := session.CellRecord{Account: k.Account, Key: fmt.Sprint(r.IntN(100)), Cell: api.Cell{Ordinal: 1 + r.IntN(300), Chat: k.ID, CreatedAt: moment(r)}}
		return within(func() error { return tx.PutCell(rec) }, func(c *modelChat) { c.cells[rec.Ordinal] = rec })
	case 5:
		ev := api.Event{ID: 1 + r.Uint64N(300), Type: api.EventCommandState, Message: fmt.Sprint(r.IntN(100)), Time: moment(r)}
		return within(func() error { return tx.PutEvent(k, ev) }, func(c *modelChat) { c.events[ev.ID] = ev })
	case 6:
		// A turn's time of opening never changes.
		n := r.IntN(6)
		turn := session.TurnRecord{ID: fmt.Sprint("t", n), OpenedAt: time.Date(2026, 12, 1, 0, 9-n, 0, 0, time.UTC), Used: time.Duration(r.IntN(100))}
		return within(func() error { return tx.PutTurn(k, turn) }, func(c *modelChat) { c.turns[turn.ID] = turn })
	case 7:
		key, rec := fmt.Sprint("key ", r.IntN(5)), session.RequestRecord{Digest: fmt.Sprint(r.IntN(100)), Command: "x"}
		return within(func() error { return tx.PutRequest(k, key, rec) }, func(c *modelChat) { c.requests[key] = rec })
	case 8:
		return stepSandbox(r, tx, m)
	default:
		rec := session.JobRecord{Job: uploader.Job{ID: fmt.Sprint("j", r.IntN(20)), Key: fmt.Sprint(r.IntN(100))}, Cell: k, Ordinal: r.IntN(9)}
		if r.IntN(2) == 0 {
			delete(m.jobs, rec.ID)
			return tx.DeleteJob(rec.ID)
		}
		m.jobs[rec.ID] = rec
		return tx.PutJob(rec)
	}
}

func stepSandbox(r *rand.Rand, tx session.Tx, m *model) error {
	id := fmt.Sprint("s-", r.IntN(4))
	switch s := m.sandboxes[id]; {
	case r.IntN(6) == 0:
		delete(m.sandboxes, id)
		return tx.DeleteSandbox(id)
	case s == nil || r.IntN(4) == 0:
		rec := session.SandboxRecord{Spec: sandbox.Spec{ID: id}, CreatedAt: moment(r), IdleSince: moment(r)}
		if s == nil {
			s = &modelSandbox{known: map[uploader.Path]knownFile{}}
			m.sandboxes[id] = s
		}
		s.rec = rec
		return tx.PutSandbox(rec)
	default:
		k := uploader.Known{Path: uploader.Path(pick(r, []string{"a", "a/b", "bad\xff", "new\nline", "ü"})), SHA256: fmt.Sprint(r.IntN(100))}
		s.known[k.Path] = knownFile{k, r.IntN(9)}
		return tx.PutKnown(id, k, s.known[k.Path].Ordinal)
	}
}

func wantNotFound(err error) error {
	if errors.Is(err, session.ErrNotFound) {
		return nil
	}
	return fmt.Errorf("what has no chat was taken: %v", err)
}

// sorted returns a map's values by key.
func sorted[K cmp.Ordered, V any](m map[K]V) []V {
	var all []V
	for _, k := range slices.Sorted(maps.Keys(m)) {
		all = append(all, m[k])
	}
	return all
}

// compare asks the store for all that it has.
func compare(t *testing.T, tx session.Tx, m *model) {
	t.Helper()
	same := func(what string, got, want any, err error) {
		t.Helper()
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%s: %+v, %v\nwant %+v", what, got, err, want)
		}
	}
	for _, account := range modelAccounts {
		var want []session.ChatRecord
		for _, id := range slices.Sorted(slices.Values(modelIDs)) {
			k := session.ChatKey{Account: account, ID: id}
			chat := m.chats[k]
			if chat == nil {
				if _, err := tx.Chat(k); !errors.Is(err, session.ErrNotFound) {
					t.Fatalf("%s is there: %v", k, err)
				}
				chat = &modelChat{}
			} else {
				want = append(want, chat.rec)
				got, err := tx.Chat(k)
				same("chat", got, chat.rec, err)
			}
			compareChat(tx, k, chat, same)
		}
		got, err := tx.Chats(account)
		same("chats of "+account, got, want, err)
	}
	var active []session.CommandRecord
	for _, id := range slices.Sorted(maps.Keys(m.active)) {
		if chat := m.chats[m.active[id]]; chat != nil && chat.commands[id].ID == id {
			active = append(active, chat.commands[id])
		}
	}
	got, err := tx.ActiveCommands()
	same("active commands", got, active, err)
	var sandboxes []session.SandboxRecord
	for _, s := range sorted(m.sandboxes) {
		sandboxes = append(sandboxes, s.rec)
		known := []uploader.Known{}
		for _, f := range sorted(s.known) {
			known = append(known, f.Known)
			ordinal, err := tx.KnownOrdinal(s.rec.Spec.ID, f.Known.Path)
			same("ordinal of a known file", ordinal, f.Ordinal, err)
		}
		got, err := tx.Known(s.rec.Spec.ID)
		same("known files", got, known, err)
	}
	gotSandboxes, err := tx.Sandboxes()
	same("sandboxes", gotSandboxes, sandboxes, err)
	jobs, err := tx.Jobs()
	same("jobs", jobs, sorted(m.jobs), err)
}

func compareChat(tx session.Tx, k session.ChatKey, chat *modelChat, same func(string, any, any, error)) {
	commands, err := tx.Commands(k)
	same("commands", commands, sorted(chat.commands), err)
	cells, err := tx.Cells(k)
	same("cells", cells, sorted(chat.cells), err)
	turns, err := tx.Turns(k)
	byTime := sorted(chat.turns)
	slices.SortFunc(byTime, func(a, b session.TurnRecord) int { return a.OpenedAt.Compare(b.OpenedAt) })
	same("turns", turns, byTime, err)
	for key, want := range chat.requests {
		got, err := tx.Request(k, key)
		same("request", got, want, err)
	}
	for ordinal, want := range chat.cells {
		got, err := tx.Cell(k, ordinal)
		same("cell", got, want, err)
	}
	// Events in pages, as a follower reads them.
	var events []api.Event
	for after := uint64(0); ; after = events[len(events)-1].ID {
		page, err := tx.Events(k, after, 7)
		same("page of events", len(page) <= 7 && (len(page) == 0 || page[0].ID > after), true, err)
		if events = append(events, page...); len(page) == 0 {
			break
		}
	}
	same("events", events, sorted(chat.events), nil)
}

// TestRandomOperations plays random transactions, some of which fail, against
// the store and the model, and opens the file again now and then.
func TestRandomOperations(t *testing.T) {
	for seed := range uint64(5) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 0))
			path := filepath.Join(t.TempDir(), "state.db")
			s := mustOpen(t, path)
			defer func() { closeChecked(t, s) }()
			m := newModel()
			undone := errors.New("undone")
			for i := range 300 {
				next := m.clone()
				err := s.Update(func(tx session.Tx) error {
					for range 1 + r.IntN(8) {
						if err := step(r, tx, next); err != nil {
							return err
						}
					}
					if r.IntN(5) == 0 {
						return undone
					}
					return nil
				})
				switch {
				case err == nil:
					m = next
				case !errors.Is(err, undone):
					t.Fatalf("transaction %d: %v", i, err)
				}
				if i%50 == 49 {
					closeChecked(t, s)
					s = mustOpen(t, path)
				}
				if i%5 == 4 {
					if err := s.View(func(tx session.Tx) error { compare(t, tx, m); return nil }); err != nil {
						t.Fatal(err)
					}
				}
			}
		})
	}
}
