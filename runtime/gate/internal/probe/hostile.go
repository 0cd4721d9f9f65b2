package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// device is the guest's only interface beside its loopback.
const device = "eth0"

// hostile does what a program does that has root in its sandbox and means
// harm. ok is false for what is no such thing.
func hostile(req Request) (got string, ok bool, err error) {
	switch req.Do {
	case "frames":
		return "", true, sendFrames(req.Frames, max(req.Count, 1))
	case "mapped":
		return "", true, connectMapped(req.Addr)
	case "sendto":
		return "", true, sendTo(req.Addr, req.Send)
	case "flush":
		return "", true, flushTables()
	case "hold":
		return holdConnections(req.Addr, req.Count)
	case "listen":
		return "", true, listen(req.Addr)
	case "heard":
		return fmt.Sprint(heard.Load()), true, nil
	case "address":
		return "", true, setAddress(req.Addr)
	case "route":
		return "", true, setRoute(req.Addr)
	case "mtu":
		return "", true, setMTU(int(req.Count))
	}
	return "", false, nil
}

// sendFrames puts frames on the wire as they are.
func sendFrames(frames [][]byte, times int64) error {
	link, err := net.InterfaceByName(device)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, int(htons(unix.ETH_P_ALL)))
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	to := &unix.SockaddrLinklayer{Ifindex: link.Index, Protocol: htons(unix.ETH_P_IP), Halen: 6}
	refused := 0
	var last error
	for range times {
		for _, f := range frames {
			copy(to.Addr[:], f)
			if err := unix.Sendto(fd, f, 0, to); err != nil {
				refused, last = refused+1, err // its own kernel does not take every frame
			}
		}
	}
	if refused == len(frames)*int(times) {
		return fmt.Errorf("the guest's kernel took none of the frames: %w", last)
	}
	return nil
}

func htons(v uint16) uint16 { return v<<8 | v>>8 }

// connectMapped connects an IPv6 socket to an IPv4 address.
func connectMapped(addr string) error {
	ap, err := netip.ParseAddrPort(addr)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	mapped := ap.Addr().As16()
	return unix.Connect(fd, &unix.SockaddrInet6{Port: int(ap.Port()), Addr: mapped})
}

// sendTo sends a datagram from a socket that is not connected.
func sendTo(addr, payload string) error {
	c, err := net.ListenPacket("udp4", "0.0.0.0:0")
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	ap, err := netip.ParseAddrPort(addr)
	if err != nil {
		return err
	}
	_, err = c.WriteTo([]byte(payload), net.UDPAddrFromAddrPort(ap))
	return err
}

// flushTables replaces the guest's packet filter with one that accepts all, as
// `iptables -F` with accepting policies does: struct ipt_replace with an entry
// for each chain's policy and one that ends the table.
func flushTables() error {
	const (
		setReplace  = 64
		entrySize   = 112
		policySize  = entrySize + 40
		endSize     = entrySize + 64
		accept      = -2      // NF_ACCEPT, as a verdict is written
		localHooks  = 0b01110 // input, forward, output
		headerSize  = 96
		firstHook   = 1
		chains      = 3
		hooksAt     = 44
		underflowAt = 64
	)
	table := make([]byte, headerSize)
	le := binary.LittleEndian
	copy(table, "filter")
	le.PutUint32(table[32:], localHooks)
	le.PutUint32(table[36:], chains+1)
	le.PutUint32(table[40:], chains*policySize+endSize)
	for i := range chains {
		le.PutUint32(table[hooksAt+4*(firstHook+i):], uint32(i*policySize))
		le.PutUint32(table[underflowAt+4*(firstHook+i):], uint32(i*policySize))
		table = append(table, filterEntry(policySize, "", le.AppendUint32(nil, 1<<32+accept))...)
	}
	table = append(table, filterEntry(endSize, "ERROR", []byte("ERROR"))...)
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	_, _, errno := unix.Syscall6(unix.SYS_SETSOCKOPT, uintptr(fd), unix.SOL_IP, setReplace,
		uintptr(unsafe.Pointer(&table[0])), uintptr(len(table)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// filterEntry is an entry without a match: struct ipt_entry, then its target.
func filterEntry(size int, target string, data []byte) []byte {
	const targetAt, dataAt = 112, 32
	e := make([]byte, size)
	binary.LittleEndian.PutUint16(e[88:], targetAt)
	binary.LittleEndian.PutUint16(e[90:], uint16(size))
	binary.LittleEndian.PutUint16(e[targetAt:], uint16(size-targetAt))
	copy(e[targetAt+2:], target)
	copy(e[targetAt+dataAt:], data)
	return e
}

// holdConnections opens connections and sends a byte on each, now and never
// again. It keeps them.
func holdConnections(addr string, n int64) (string, bool, error) {
	opened := 0
	var last error
	for i := range n {
		c, err := net.DialTimeout("tcp4", addr, patience)
		if err != nil {
			last = err
			continue
		}
		if _, err := c.Write([]byte("G")); err != nil {
			return "", true, err
		}
		kept[fmt.Sprint("held", i)] = c
		opened++
	}
	if opened == 0 {
		return "", true, last
	}
	return fmt.Sprint(opened), true, nil
}

// heard counts what reached a listener of the guest's.
var heard atomic.Int64

func listen(addr string) error {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			heard.Add(1)
			_ = c.Close()
		}
	}()
	pc, err := net.ListenPacket("udp", addr)
	if err != nil {
		return err
	}
	go func() {
		b := make([]byte, 100)
		for {
			if _, _, err := pc.ReadFrom(b); err != nil {
				return
			}
			heard.Add(1)
		}
	}()
	return nil
}

// setAddress gives the interface one more address.
func setAddress(cidr string) error {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return err
	}
	addr, err := netlink.ParseAddr(cidr)
	if err != nil {
		return err
	}
	err = netlink.AddrAdd(link, addr)
	if errors.Is(err, syscall.EEXIST) {
		return nil
	}
	return err
}

// setRoute leads a range through the interface without a gateway.
func setRoute(cidr string) error {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return err
	}
	_, dst, err := net.ParseCIDR(cidr)
	if err != nil {
		return err
	}
	return netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: dst, Scope: netlink.SCOPE_LINK})
}

func setMTU(mtu int) error {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return err
	}
	return netlink.LinkSetMTU(link, mtu)
}
