package gate

import (
	"fmt"
	"io"
	"testing"
)

func TestSmoke(t *testing.T) {
	w := newWorld(t)
	w.listenTCP(w.outer, publicAddr+":80", echo)
	w.listenUDP(w.outer, publicAddr+":90")
	m := w.manager(nil)
	a := w.attach(m, "one")
	c, took, err := w.guestDial(a, "tcp4", publicAddr+":80")
	w.must(err)
	fmt.Println(took)
	fmt.Fprint(c, "hello")
	b := make([]byte, 5)
	_, err = io.ReadFull(c, b)
	w.must(err)
	_, took, err = w.guestDial(a, "tcp4", "10.1.2.3:80")
	fmt.Println(took, err)
	u, _, err := w.guestDial(a, "udp4", publicAddr+":90")
	w.must(err)
	fmt.Fprint(u, "hello")
	n, err := u.Read(b)
	fmt.Println(n, err)
	fmt.Println(w.arrivals())
}
