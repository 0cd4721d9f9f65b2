package session

import (
	"context"
	"errors"
	"sync"
	"time"

	"mediasandbox/runtime/sandbox"
)

// pool keeps booted sandboxes ready, with the network of a chat that has set
// nothing.
type pool struct {
	engine *Engine
	ready  chan warm
	ctx    context.Context
	cancel context.CancelFunc
	want   chan struct{}
	done   sync.WaitGroup
}

type warm struct {
	spec   sandbox.Spec
	handle sandbox.Handle
}

// poolRetry is the pause after a boot that went wrong.
const poolRetry = 5 * time.Second

func newPool(e *Engine, size int) *pool {
	p := &pool{engine: e, ready: make(chan warm, max(size, 1)), want: make(chan struct{}, max(size, 1))}
	p.ctx, p.cancel = context.WithCancel(e.ctx)
	for range size {
		p.want <- struct{}{}
	}
	p.done.Go(p.fill)
	return p
}

// fill boots one sandbox for each wish.
func (p *pool) fill() {
	for {
		select {
		case <-p.want:
		case <-p.ctx.Done():
			return
		}
		spec, h, err := p.engine.boot(p.ctx, p.engine.cfg.Network.anyChat())
		if err != nil {
			if p.ctx.Err() != nil {
				return
			}
			p.engine.log.Error("boot a sandbox for the pool", "error", err)
			select {
			case <-time.After(poolRetry):
				p.want <- struct{}{}
			case <-p.ctx.Done():
				return
			}
			continue
		}
		p.ready <- warm{spec, h}
	}
}

// take returns a booted sandbox, from the pool when it has one. One from the
// pool has another policy in force than is asked for.
func (p *pool) take(ctx context.Context, network sandbox.NetworkPolicy) (sandbox.Spec, sandbox.Handle, error) {
	if p.ctx.Err() != nil {
		return sandbox.Spec{}, nil, errClosing
	}
	for network.Off() == p.engine.cfg.Network.anyChat().Off() {
		select {
		case w, ok := <-p.ready:
			if !ok {
				return sandbox.Spec{}, nil, errClosing
			}
			p.want <- struct{}{} // there is room: each wish stood for this one
			select {
			case <-w.handle.Done(): // it ended while it waited
				if err := p.engine.removeSandbox(ctx, w.spec.ID); err != nil {
					return w.spec, nil, err
				}
				continue
			default:
				return w.spec, w.handle, nil
			}
		default:
		}
		break
	}
	return p.engine.boot(ctx, network)
}

// close removes the sandboxes that no chat has.
func (p *pool) close() error {
	p.cancel()
	p.done.Wait()
	close(p.ready)
	var errs []error
	for w := range p.ready {
		errs = append(errs, w.handle.Detach(), p.engine.removeSandbox(context.Background(), w.spec.ID))
	}
	return errors.Join(errs...)
}
