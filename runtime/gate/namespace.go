package gate

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"mediasandbox/runtime/gate/internal/handover"
)

// tapQueue bounds the frames that wait for the gate in the kernel.
const tapQueue = 512

// onThread runs f on a thread that ends with it. What f does to the thread's
// namespaces and rights concerns nobody else.
func onThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		// Never unlocked: the thread must not run another goroutine.
		runtime.LockOSThread()
		done <- f()
	}()
	return <-done
}

// inNewNamespace runs f in a network namespace of its own. With a path the
// namespace is pinned there first, and stays if f succeeds.
func inNewNamespace(path string, f func() error) (made bool, err error) {
	err = onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("make a network namespace: %w", err)
		}
		if path == "" {
			return f()
		}
		pin, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return fmt.Errorf("pin the network namespace: %w", err)
		}
		made = true
		if err := pin.Close(); err != nil {
			return fmt.Errorf("pin the network namespace: %w", err)
		}
		if err := unix.Mount("/proc/thread-self/ns/net", path, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("pin the network namespace: %w", err)
		}
		return f()
	})
	return made, err
}

// inNamespace runs f in the network namespace pinned at path.
func inNamespace(path string, f func() error) error {
	return onThread(func() error {
		if err := enter(path); err != nil {
			return err
		}
		return f()
	})
}

func enter(path string) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open the network namespace: %w", err)
	}
	err = unix.Setns(fd, unix.CLONE_NEWNET)
	if err := errors.Join(err, unix.Close(fd)); err != nil {
		return fmt.Errorf("enter the network namespace %s: %w", path, err)
	}
	return nil
}

// makeNamespace makes and pins the namespace of id, and returns its TAP if it
// is to have one. On error nothing is left.
func (m *Manager) makeNamespace(id string, withTAP bool) (tap *os.File, err error) {
	path := m.netnsPath(id)
	made, err := inNewNamespace(path, func() error {
		if err := loopbackUp(); err != nil {
			return err
		}
		if !withTAP {
			return nil
		}
		if tap, err = openTAP(); err != nil {
			return err
		}
		return configureLink()
	})
	if err == nil {
		return tap, nil
	}
	if tap != nil {
		err = errors.Join(err, tap.Close())
	}
	if made {
		err = errors.Join(err, m.removeNamespace(id))
	}
	return nil, err
}

// loopbackUp brings the loopback device up, with ::1, and turns IPv6 off for
// every device that comes after it: the guest learns at once that IPv6 leads
// nowhere.
func loopbackUp() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("bring the loopback device up: %w", err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return fmt.Errorf("bring the loopback device up: %w", err)
	}
	err = os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0)
	if err != nil && !errors.Is(err, os.ErrNotExist) { // a kernel without IPv6 has no such file
		return fmt.Errorf("turn IPv6 off in the sandbox's namespace: %w", err)
	}
	return nil
}

// openTAP opens the TAP of the calling thread's namespace, making it if it
// isn't there. It is persistent, and so survives the process that holds it.
func openTAP() (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the TAP: %w", err)
	}
	f := os.NewFile(uintptr(fd), "tap")
	req, err := unix.NewIfreq(handover.TAPName)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the TAP: %w", err), f.Close())
	}
	req.SetUint16(handover.TAPFlags)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, req); err != nil {
		return nil, errors.Join(fmt.Errorf("open the TAP: %w", err), f.Close())
	}
	for _, set := range []struct {
		what  string
		req   uint
		value int
		byPtr bool
	}{
		{"its header size", unix.TUNSETVNETHDRSZ, handover.VnetHdrLen, true},
		{"its offloads", unix.TUNSETOFFLOAD, unix.TUN_F_CSUM | unix.TUN_F_TSO4, false},
		{"its persistence", unix.TUNSETPERSIST, 1, false},
	} {
		err := unix.IoctlSetInt(fd, set.req, set.value)
		if set.byPtr {
			err = unix.IoctlSetPointerInt(fd, set.req, set.value)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("open the TAP: set %s: %w", set.what, err), f.Close())
		}
	}
	return f, nil
}

// configureLink gives the TAP the guest's address, a route and the gate as a
// neighbour that needs no asking. runsc takes all of it over, so it is right
// once, before a sandbox starts or is restored, and never under a living one.
func configureLink() error {
	link, err := netlink.LinkByName(handover.TAPName)
	if err != nil {
		return fmt.Errorf("configure the TAP: %w", err)
	}
	index := link.Attrs().Index
	gw := handover.GateAddr.AsSlice()
	addr, err := netlink.ParseAddr(fmt.Sprintf("%s/%d", handover.GuestAddr, handover.Link.Bits()))
	if err != nil {
		return fmt.Errorf("configure the TAP: %w", err)
	}
	steps := []struct {
		what string
		do   func() error
	}{
		{"address", func() error { return netlink.LinkSetHardwareAddr(link, handover.GuestMAC) }},
		{"MTU", func() error { return netlink.LinkSetMTU(link, handover.MTU) }},
		{"queue", func() error { return netlink.LinkSetTxQLen(link, tapQueue) }},
		{"state", func() error { return netlink.LinkSetUp(link) }},
		{"IP address", func() error { return netlink.AddrReplace(link, addr) }},
		{"neighbour", func() error {
			return netlink.NeighSet(&netlink.Neigh{
				LinkIndex: index, State: netlink.NUD_PERMANENT, IP: gw, HardwareAddr: handover.GateMAC,
			})
		}},
		{"route", func() error { return netlink.RouteReplace(&netlink.Route{LinkIndex: index, Gw: gw}) }},
	}
	for _, s := range steps {
		if err := s.do(); err != nil {
			return fmt.Errorf("configure the TAP: set its %s: %w", s.what, err)
		}
	}
	return nil
}

// removeNamespace removes the TAP of id and lets go of its namespace, which
// ends with the last process in it. It is no error when nothing is there.
func (m *Manager) removeNamespace(id string) error {
	path := m.netnsPath(id)
	pinned, err := isNamespace(path)
	if err != nil && !isGone(err) {
		return err
	}
	var errs []error
	if pinned {
		// The device would go with the namespace, but some time later.
		errs = append(errs, inNamespace(path, removeTAP))
	}
	for {
		err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if isGone(err) {
			break
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("unpin the network namespace %s: %w", path, err))
			break
		}
	}
	if err := os.Remove(path); err != nil && !isGone(err) {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func removeTAP() error {
	link, err := netlink.LinkByName(handover.TAPName)
	if err != nil {
		var missing netlink.LinkNotFoundError
		if errors.As(err, &missing) {
			return nil
		}
		return fmt.Errorf("remove the TAP: %w", err)
	}
	if err := netlink.LinkDel(link); err != nil {
		return fmt.Errorf("remove the TAP: %w", err)
	}
	return nil
}

// isNamespace says whether a namespace is mounted at path, and not merely the
// file that one was to be mounted on.
func isNamespace(path string) (bool, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return false, fmt.Errorf("look at the network namespace %s: %w", path, err)
	}
	return st.Type == unix.NSFS_MAGIC, nil
}
