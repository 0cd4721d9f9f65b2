package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"mediasandbox/runtime/gate/internal/hostaddr"
	"mediasandbox/runtime/gate/policy"
)

// hostWatch knows which addresses are the host's own. Its sockets are opened
// before the process loses the right to bind.
type hostWatch struct {
	handle *netlink.Handle
	events *nl.NetlinkSocket
}

// refreshEvery is how often the addresses are read without being told that
// they changed, should a message have been lost.
const refreshEvery = 30 * time.Second

// refreshGap bounds how often a host with restless routes is read.
const refreshGap = 50 * time.Millisecond

func newHostWatch() (*hostWatch, error) {
	events, err := nl.Subscribe(unix.NETLINK_ROUTE,
		unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("watch the host's addresses: %w", err)
	}
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		events.Close()
		return nil, fmt.Errorf("watch the host's addresses: %w", err)
	}
	return &hostWatch{handle: handle, events: events}, nil
}

// Close ends run.
func (w *hostWatch) Close() {
	w.events.Close()
	w.handle.Close()
}

// read returns the host's addresses as they are now.
func (w *hostWatch) read() (policy.HostSet, error) { return hostaddr.Read(w.handle) }

// run calls set with the addresses whenever they may have changed, until ctx
// ends or Close is called.
func (w *hostWatch) run(ctx context.Context, set func(policy.HostSet)) error {
	failures := 0
	for {
		wait := unix.NsecToTimeval(int64(refreshEvery))
		if err := w.events.SetReceiveTimeout(&wait); err != nil {
			return fmt.Errorf("watch the host's addresses: %w", err)
		}
		_, _, err := w.events.Receive()
		switch {
		case ctx.Err() != nil || errors.Is(err, os.ErrClosed):
			return nil
		case err == nil, errors.Is(err, unix.ENOBUFS), errors.Is(err, unix.EAGAIN), errors.Is(err, os.ErrDeadlineExceeded):
		default:
			return fmt.Errorf("watch the host's addresses: %w", err)
		}
		hosts, err := w.read()
		if err != nil {
			// A dump that was interrupted by a change is read again; a host
			// that can't be read at all must not leave an old list in force.
			if failures++; failures > 100 {
				return err
			}
		} else {
			failures = 0
			set(hosts)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(refreshGap):
		}
	}
}
