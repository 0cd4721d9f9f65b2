package httpapi

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/http"
	"os/user"
	"path"
	"regexp"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"mediasandbox/daemon/api"
)

// Operators are those who may act for any account. Root always is one.
type Operators struct {
	UIDs []uint32
	// Groups are names; a member by primary or supplementary group counts.
	Groups []string
}

// peer is who is at the other end of the socket, as the kernel says.
type peer struct{ uid, gid uint32 }

// caller is who a request acts for.
type caller struct {
	account  string
	operator bool
	request  string
}

type (
	peerKey   struct{}
	callerKey struct{}
)

func callerOf(ctx context.Context) caller {
	c, _ := ctx.Value(callerKey{}).(caller)
	return c
}

func peerOf(c net.Conn) (peer, error) {
	conn, ok := c.(*net.UnixConn)
	if !ok {
		return peer{}, fmt.Errorf("a connection from %s has no peer credentials", c.RemoteAddr())
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return peer{}, fmt.Errorf("read peer credentials: %w", err)
	}
	var cred *unix.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err != nil || credErr != nil {
		return peer{}, fmt.Errorf("read peer credentials: %v, %v", err, credErr)
	}
	return peer{cred.Uid, cred.Gid}, nil
}

var validAccount = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:@+-]{0,63}$`)

// identify finds out whom each request acts for.
func (s *server) identify(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := caller{request: rand.Text()[:16]}
		refuse := func(err error) {
			s.fail(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, c)), err)
		}
		p, ok := r.Context().Value(peerKey{}).(peer)
		if !ok {
			refuse(api.Errorf(api.CodeUnauthenticated, "the caller can't be told").WithHint("connect to the daemon's Unix socket"))
			return
		}
		own := "uid:" + strconv.FormatUint(uint64(p.uid), 10)
		c.account, c.operator = own, s.cfg.Operators.include(p)
		if want := r.Header.Get(api.AccountHeader); want != "" && want != own {
			if !validAccount.MatchString(want) {
				refuse(api.Errorf(api.CodeInvalid, "account %q is not valid", want).WithHint("use 1 to 64 of A-Z a-z 0-9 . _ : @ + -"))
				return
			}
			if !c.operator {
				refuse(api.Errorf(api.CodeForbidden, "uid %d may act for the account %s only", p.uid, own).
					WithHint("an operator is named in the configuration's [access] section"))
				return
			}
			c.account = want
		}
		if path.Clean(r.URL.Path) != r.URL.Path { // the mux would answer with a page that redirects
			refuse(api.Errorf(api.CodeRouteNotFound, "path %q is not clean", r.URL.Path).WithHint("leave out empty, . and .. parts"))
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, c)))
	})
}

func (o Operators) include(p peer) bool {
	if p.uid == 0 || slices.Contains(o.UIDs, p.uid) {
		return true
	}
	if len(o.Groups) == 0 {
		return false
	}
	gids := []string{strconv.FormatUint(uint64(p.gid), 10)}
	if u, err := user.LookupId(strconv.FormatUint(uint64(p.uid), 10)); err == nil {
		if more, err := u.GroupIds(); err == nil {
			gids = append(gids, more...)
		}
	}
	for _, name := range o.Groups {
		if g, err := user.LookupGroup(name); err == nil && slices.Contains(gids, g.Gid) {
			return true
		}
	}
	return false
}
