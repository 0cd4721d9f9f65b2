package api

import "time"

// Retention is how long a cell is kept after it was published.
type Retention string

// The ends of the scale; what lies between is in Retentions.
const (
	RetentionForever Retention = "forever"
	// RetentionImmediate removes a cell as soon as it is published: its events
	// are all that stays.
	RetentionImmediate Retention = "immediate"
)

// span is a length of time; months and years are the calendar's.
type span struct {
	retention Retention
	hours     int
	days      int
	months    int
}

var spans = []span{
	{RetentionImmediate, 0, 0, 0},
	{"1h", 1, 0, 0}, {"2h", 2, 0, 0}, {"6h", 6, 0, 0}, {"12h", 12, 0, 0},
	{"1d", 0, 1, 0}, {"2d", 0, 2, 0}, {"3d", 0, 3, 0}, {"5d", 0, 5, 0}, {"7d", 0, 7, 0}, {"10d", 0, 10, 0},
	{"14d", 0, 14, 0}, {"30d", 0, 30, 0}, {"90d", 0, 90, 0},
	{"6mo", 0, 0, 6}, {"1y", 0, 0, 12},
}

// Retentions lists them all, the shortest first.
func Retentions() []Retention {
	var all []Retention
	for _, s := range spans {
		all = append(all, s.retention)
	}
	return append(all, RetentionForever)
}

// Expiry returns when a cell of that time is to be removed; nil is never.
func (r Retention) Expiry(from time.Time) *time.Time {
	for _, s := range spans {
		if s.retention == r {
			at := from.AddDate(0, s.months, s.days).Add(time.Duration(s.hours) * time.Hour)
			return &at
		}
	}
	return nil
}

// Settings are an account's own.
type Settings struct {
	Account   string    `json:"account"`
	Retention Retention `json:"retention" enum:"immediate,1h,2h,6h,12h,1d,2d,3d,5d,7d,10d,14d,30d,90d,6mo,1y,forever" doc:"How long cells are kept in chats that say nothing else."`
	// Stored and Today are what the account has used, with its limits.
	Stored      int64 `json:"stored_bytes" doc:"Of its cells."`
	StoredLimit int64 `json:"stored_limit_bytes,omitempty" doc:"Absent when there is none."`
	Today       int64 `json:"published_today_bytes" doc:"Since midnight UTC."`
	TodayLimit  int64 `json:"published_limit_bytes,omitempty" doc:"Absent when there is none."`
}

// ChangeSettings changes what is given.
type ChangeSettings struct {
	Retention Retention `json:"retention,omitempty"`
}

// ChangeChat changes what is given.
type ChangeChat struct {
	Title     *string    `json:"title,omitempty" maxLength:"200"`
	Retention *Retention `json:"retention,omitempty" doc:"Of cells that are published from now on, as in Settings; account is that of the account."`
}

// RetentionAccount is what a chat says that follows its account.
const RetentionAccount Retention = "account"
