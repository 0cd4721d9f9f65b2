package pid1

import (
	"math"
	"os"
	"sync"

	"mediasandbox/runtime/guest"
)

// input carries what the host sends to a command's stdin, in order, without
// ever blocking the connection: the pipe's reader may be slow or absent.
type input struct {
	proc string
	host *Init
	w    *os.File
	// end is what the reader takes for the end of input, where closing w does
	// not say it.
	end []byte

	mu     sync.Mutex
	cond   *sync.Cond
	queue  [][]byte
	closed bool
}

func newInput(proc string, w *os.File, host *Init) *input {
	in := &input{proc: proc, w: w, host: host}
	in.cond = sync.NewCond(&in.mu)
	go in.run()
	return in
}

// write queues data; no data is end of file.
func (in *input) write(data []byte) {
	in.mu.Lock()
	in.queue = append(in.queue, data)
	in.mu.Unlock()
	in.cond.Signal()
}

// close ends the input without waiting for the reader.
func (in *input) close() {
	in.mu.Lock()
	in.closed = true
	in.mu.Unlock()
	in.cond.Signal()
	in.w.Close()
}

func (in *input) run() {
	defer in.w.Close()
	var taken int64
	for {
		data, ok := in.next()
		if ok && len(data) == 0 {
			_, _ = in.w.Write(in.end) // a command that has gone needs no end
		}
		if !ok || len(data) == 0 {
			return
		}
		if _, err := in.w.Write(data); err != nil {
			taken = math.MaxInt64 - guest.MaxChunk // the command closed its stdin: all else is taken too
		}
		taken += int64(len(data))
		// A host that is away has given up on the rest of the input.
		_ = in.host.sendChunk(guest.Chunk{Proc: in.proc, Offset: taken})
		if taken > math.MaxInt64-2*guest.MaxChunk {
			return
		}
	}
}

func (in *input) next() ([]byte, bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for len(in.queue) == 0 && !in.closed {
		in.cond.Wait()
	}
	if in.closed {
		return nil, false
	}
	data := in.queue[0]
	in.queue = in.queue[1:]
	return data, true
}
