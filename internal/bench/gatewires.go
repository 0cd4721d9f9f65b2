package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The plain way out of a sandbox: over a veth pair to a router, and over
// another to a server. All of it is in namespaces of the run's own.
const (
	wiredGuest  = "192.0.2.2/24"
	wiredRouter = "192.0.2.1/24"
	routerOut   = "198.51.100.1/24"
	wiredServer = "198.51.100.10/24"
	serverAddr  = "198.51.100.10"
)

// wires are the namespaces of the plain way.
type wires struct{ guest, router, server string }

// newWires makes them.
func (b *bench) newWires() (w wires, err error) {
	for name, path := range map[string]*string{"guest": &w.guest, "router": &w.router, "server": &w.server} {
		*path = filepath.Join(b.dir, "netns-"+name)
		if err := pinNamespace(*path); err != nil {
			return w, err
		}
		b.defers(func() error { return unmount(*path) })
	}
	for _, link := range []struct{ from, name, addr, to, peer, peerAddr string }{
		{w.guest, "eth0", wiredGuest, w.router, "guest", wiredRouter},
		{w.router, "out", routerOut, w.server, "eth0", wiredServer},
	} {
		err := join(link.from, link.name, link.addr, link.to, link.peer, link.peerAddr)
		if err != nil {
			return w, fmt.Errorf("wire the namespaces: %w", err)
		}
	}
	err = errors.Join(
		within(w.guest, func() error { return netlink.RouteAdd(&netlink.Route{Gw: addressOf(wiredRouter)}) }),
		within(w.server, func() error { return netlink.RouteAdd(&netlink.Route{Gw: addressOf(routerOut)}) }),
		within(w.router, func() error { return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0) }),
	)
	if err != nil {
		return w, fmt.Errorf("route between the namespaces: %w", err)
	}
	return w, nil
}

func addressOf(cidr string) net.IP {
	ip, _, err := net.ParseCIDR(cidr)
	if err != nil {
		panic(err) // never: the addresses are above
	}
	return ip
}

// join puts a veth pair between two namespaces.
func join(from, name, addr, to, peer, peerAddr string) error {
	far, err := os.Open(to)
	if err != nil {
		return err
	}
	defer far.Close()
	err = within(from, func() error {
		pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: peer, PeerNamespace: netlink.NsFd(int(far.Fd()))}
		if err := netlink.LinkAdd(pair); err != nil {
			return err
		}
		return raise(name, addr)
	})
	if err != nil {
		return err
	}
	return within(to, func() error { return raise(peer, peerAddr) })
}

// raise gives a link its address and brings it up.
func raise(name, addr string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	a, err := netlink.ParseAddr(addr)
	if err != nil {
		return err
	}
	return errors.Join(netlink.AddrAdd(link, a), netlink.LinkSetUp(link))
}

// onThread runs f on a thread that ends with it.
func onThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: no other goroutine may get it
		done <- f()
	}()
	return <-done
}

// pinNamespace makes a network namespace and mounts it at path.
func pinNamespace(path string) error {
	pin, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		err = pin.Close()
	}
	if err == nil {
		err = onThread(func() error {
			if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
				return err
			}
			return unix.Mount("/proc/thread-self/ns/net", path, "", unix.MS_BIND, "")
		})
	}
	if err != nil {
		return fmt.Errorf("make a network namespace: %w", err)
	}
	return within(path, func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(lo)
	})
}

// within runs f in the namespace pinned at path.
func within(path string, f func() error) error {
	return onThread(func() error {
		ns, err := os.Open(path)
		if err != nil {
			return err
		}
		defer ns.Close()
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter the namespace at %s: %w", path, err)
		}
		return f()
	})
}

// peerBuffer is how much the servers read and write at a time, in bytes.
const peerBuffer = 256 << 10

// servePeers answers connections until ln closes. The first byte says how:
// f is sent bytes for as long as it takes them, p is read to its end and then
// closed, e gets each byte back.
func servePeers(ln net.Listener) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			serve(c)
		}()
	}
}

func serve(c net.Conn) {
	b := make([]byte, peerBuffer)
	if _, err := io.ReadFull(c, b[:1]); err != nil {
		return // it only connected
	}
	for how := b[0]; ; {
		n, err := len(b), error(nil)
		if how != 'f' {
			n, err = c.Read(b)
		}
		if err == nil && how != 'p' {
			_, err = c.Write(b[:n])
		}
		if err != nil {
			return
		}
	}
}

// listenPeers serves at an address, in the namespace at path or in the run's own.
func (b *bench) listenPeers(path, address string) (port string, err error) {
	var ln net.Listener
	listen := func() (err error) {
		ln, err = net.Listen("tcp4", address)
		return err
	}
	if path == "" {
		err = listen()
	} else {
		err = within(path, listen)
	}
	if err != nil {
		return "", fmt.Errorf("serve at %s: %w", address, err)
	}
	b.defers(ln.Close)
	go servePeers(ln)
	_, port, err = net.SplitHostPort(ln.Addr().String())
	return port, err
}
