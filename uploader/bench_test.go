package uploader

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// nobody writes.
type nobody struct{}

func (nobody) OpenForWriting(context.Context, string) ([]string, error) { return nil, nil }

// BenchmarkFlush is the time from the end of a command to all its files'
// being recorded, for an answer of the guest that costs nothing.
func BenchmarkFlush(b *testing.B) {
	for _, files := range []int{1, 100, 5000} {
		for _, size := range []int{1 << 10, 1 << 20} {
			if files*size > 1<<30 {
				continue
			}
			b.Run(fmt.Sprintf("%d files of %d", files, size), func(b *testing.B) {
				r := newBenchRig(b)
				data := string(make([]byte, size-8))
				for n := 0; b.Loop(); n++ {
					b.StopTimer()
					for i := range files {
						r.write(fmt.Sprint("f", i), fmt.Sprintf("%08d%s", n, data))
					}
					b.StartTimer()
					if _, err := r.Flush(context.Background()); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.Elapsed())/float64(time.Millisecond)/float64(b.N*files), "ms/file")
			})
		}
	}
}

// newBenchRig is a rig whose receiver only removes what it is given.
func newBenchRig(b *testing.B) *rig {
	spool, err := OpenSpool(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	r := &rig{t: b, dir: b.TempDir(), spool: spool}
	cfg := Config{Dir: r.dir, Spool: spool, Receiver: remover{spool}, Writers: nobody{}}
	if r.Watcher, err = Watch(cfg); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := r.Watcher.Close(); err != nil {
			b.Error(err)
		}
		spool.Close()
	})
	return r
}

type remover struct{ spool *Spool }

func (r remover) Finished(_ context.Context, files []Finished) error {
	for _, f := range files {
		if err := r.spool.Remove(f.Snapshot); err != nil {
			return err
		}
	}
	return nil
}
