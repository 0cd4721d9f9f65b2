package uploader

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Identity tells one state of a file from any other. The change time cannot be
// set by the guest, so two equal identities mean equal contents, but for a
// page that is mapped and written while it is already dirty: that shows once
// the kernel writes the page back.
type Identity struct {
	Dev   uint64 `json:"dev"`
	Inode uint64 `json:"inode"`
	Size  int64  `json:"size"`
	// MTime and CTime are in nanoseconds since 1970.
	MTime int64 `json:"mtime"`
	CTime int64 `json:"ctime"`
}

// Known is what the receiver keeps of a file it took, one for each path, and
// gives to the next Watcher of the same directory. It is written in the
// transaction that records the file.
type Known struct {
	Path     Path     `json:"path"`
	Identity Identity `json:"identity"`
	// SHA256 is the content's digest in lower-case hex.
	SHA256 string `json:"sha256"`
}

// Finished is a file whose writer is done with it, safe in the spool.
type Finished struct {
	Path     Path
	Snapshot Snapshot
	Identity Identity
}

// Known returns what the receiver should keep.
func (f Finished) Known() Known {
	return Known{Path: f.Path, Identity: f.Identity, SHA256: f.Snapshot.SHA256}
}

// Reason says why a file is not published.
type Reason string

// The reasons.
const (
	ReasonSymlink     Reason = "is a symbolic link"
	ReasonFIFO        Reason = "is a named pipe"
	ReasonSocket      Reason = "is a socket"
	ReasonDevice      Reason = "is a device"
	ReasonLinks       Reason = "has more than one name (hard link)"
	ReasonDepth       Reason = "is nested too deep"
	ReasonPathLength  Reason = "has a path that is too long"
	ReasonTooMany     Reason = "is beyond the limit of files, like others that are not named"
	ReasonTooLarge    Reason = "is larger than one file may be"
	ReasonOpen        Reason = "is still open for writing"
	ReasonChanging    Reason = "keeps changing"
	ReasonTemporary   Reason = "has a temporary name"
	ReasonUnreadable  Reason = "cannot be read"
	ReasonNotRecorded Reason = "could not be recorded"
)

// Skipped names a file that is not published, and why. Err is the cause where
// there is one.
type Skipped struct {
	Path   Path
	Reason Reason
	Err    error
	// Identity is the state in which it was looked at; zero when it was not.
	Identity Identity
}

// String is a line for a log or a user.
func (s Skipped) String() string {
	if s.Err != nil {
		return fmt.Sprintf("%s %s: %v", s.Path, s.Reason, s.Err)
	}
	return fmt.Sprintf("%s %s", s.Path, s.Reason)
}

// fileStat is what the watcher needs to know of a directory entry.
type fileStat struct {
	id    Identity
	mode  uint32
	links uint64
}

func statOf(st *unix.Stat_t) fileStat {
	return fileStat{
		id: Identity{
			Dev:   uint64(st.Dev),
			Inode: st.Ino,
			Size:  st.Size,
			MTime: st.Mtim.Nano(),
			CTime: st.Ctim.Nano(),
		},
		mode:  st.Mode,
		links: uint64(st.Nlink),
	}
}

func (s fileStat) isDir() bool     { return s.mode&unix.S_IFMT == unix.S_IFDIR }
func (s fileStat) isRegular() bool { return s.mode&unix.S_IFMT == unix.S_IFREG }

// unfit returns why a file of this kind is never published, or "".
func (s fileStat) unfit() Reason {
	switch s.mode & unix.S_IFMT {
	case unix.S_IFREG:
		if s.links > 1 {
			return ReasonLinks
		}
		return ""
	case unix.S_IFLNK:
		return ReasonSymlink
	case unix.S_IFIFO:
		return ReasonFIFO
	case unix.S_IFSOCK:
		return ReasonSocket
	}
	return ReasonDevice
}

// racyWindow is longer than the coarsest tick by which kernels stamp files: a
// file changed within it could change again and keep its identity.
const racyWindow = 15 * time.Millisecond

// racyFor returns how long to wait until an identity can be trusted.
func (id Identity) racyFor(now time.Time) time.Duration {
	age := now.Sub(time.Unix(0, id.CTime))
	if age < 0 || age > racyWindow {
		return 0
	}
	return racyWindow - age
}
