package sandbox

import "context"

// Disk is where a sandbox's files are on the host.
type Disk struct {
	// Data is a directory with a bound of its own.
	Data string
	// Overlay is a directory for the writable layer.
	Overlay string
}

// Disks gives each sandbox a disk.
type Disks interface {
	// Make makes a disk. When it returns an error nothing of it is left.
	Make(ctx context.Context, id string) (Disk, error)
	// Open returns a disk that was made before, also before the host
	// restarted.
	Open(id string) (Disk, error)
	// Remove removes a disk in any state; nothing there is no error.
	Remove(ctx context.Context, id string) error
	// List names the disks that there are.
	List() ([]string, error)
}
