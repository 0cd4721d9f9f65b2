package runsc

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"mediasandbox/runtime/sandbox"
)

// flags are runsc's own, before its verb.
func (r *Runtime) flags(spec sandbox.Spec) []string {
	flags := []string{
		"--root", filepath.Join(r.cfg.RunDir, "state"),
		"--platform", "systrap",
		"--network", "sandbox",
		"--host-uds", "open",
		"--in-sandbox-cgroup", "v2",
		"--overlay2", "root:" + overlay(spec),
	}
	if !r.cgroups.usable {
		flags = append(flags, "--ignore-cgroups")
	}
	return flags
}

// overlay puts the writable layer over the image on the sandbox's disk, so
// that what a guest installs does not take memory.
func overlay(spec sandbox.Spec) string { return "dir=" + spec.Overlay }

// Guest directories and the sub-directories of Spec.Disk behind them.
var binds = []struct {
	disk, guest string
	readOnly    bool
}{
	{"workspace", "/workspace", false},
	{"inputs", "/inputs", true},
	{"outputs", "/outputs", false},
	{"skills", "/skills", true},
	{"tmp", "/tmp", false}, // else it would be memory without a bound of its own
	{sandbox.JournalDir, "/.journal", false},
}

// writeBundle writes the OCI bundle into the sandbox's run directory.
func (r *Runtime) writeBundle(spec sandbox.Spec, network sandbox.Attachment) error {
	dir := r.dir(spec.ID)
	for _, b := range binds {
		if err := os.MkdirAll(filepath.Join(spec.Disk, b.disk), 0o755); err != nil {
			return fmt.Errorf("make the sandbox's disk: %w", err)
		}
	}
	if err := os.Chmod(filepath.Join(spec.Disk, "tmp"), 0o777|os.ModeSticky); err != nil {
		return fmt.Errorf("make the sandbox's disk: %w", err)
	}
	for _, d := range []string{spec.Overlay, filepath.Join(dir, "root"), filepath.Join(dir, "ctl")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return fmt.Errorf("make the bundle: %w", err)
		}
	}
	resolv := "nameserver " + network.Resolver.String() + "\noptions timeout:5 attempts:2\n"
	if !network.Resolver.IsValid() {
		resolv = "# this sandbox has no network\n"
	}
	if err := os.WriteFile(filepath.Join(dir, "resolv.conf"), []byte(resolv), 0o644); err != nil {
		return fmt.Errorf("write the bundle: %w", err)
	}
	body, err := json.MarshalIndent(r.ociSpec(spec, network), "", " ")
	if err != nil {
		return fmt.Errorf("write the bundle: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), body, 0o600); err != nil {
		return fmt.Errorf("write the bundle: %w", err)
	}
	return nil
}

// capabilities of the guest's root, over what is in the guest only: the usual
// container set, and SYS_PTRACE to see which files are open.
var capabilities = []string{
	"CAP_AUDIT_WRITE", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_MKNOD",
	"CAP_NET_BIND_SERVICE", "CAP_SETFCAP", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID", "CAP_SYS_CHROOT", "CAP_SYS_PTRACE",
}

// openFiles is the guest's limit of open files a process.
const openFiles = 65536

func (r *Runtime) ociSpec(spec sandbox.Spec, network sandbox.Attachment) *specs.Spec {
	s := &specs.Spec{
		Version: specs.Version,
		Process: &specs.Process{
			Args: []string{"/.init/sandbox-init", "-pids=" + strconv.FormatInt(spec.Limits.PIDs, 10)},
			Env:  []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
			Cwd:  "/",
			Capabilities: &specs.LinuxCapabilities{
				Bounding: capabilities, Effective: capabilities, Permitted: capabilities,
			},
			Rlimits: []specs.POSIXRlimit{{Type: "RLIMIT_NOFILE", Hard: openFiles, Soft: openFiles}},
		},
		Root:     &specs.Root{Path: "root"},
		Hostname: "sandbox",
		Annotations: map[string]string{
			"dev.gvisor.spec.rootfs.source":  spec.Image,
			"dev.gvisor.spec.rootfs.type":    "erofs",
			"dev.gvisor.spec.rootfs.overlay": overlay(spec),
		},
		Mounts: r.mounts(spec),
		Linux: &specs.Linux{
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.PIDNamespace}, {Type: specs.IPCNamespace}, {Type: specs.UTSNamespace}, {Type: specs.MountNamespace},
				{Type: specs.NetworkNamespace, Path: network.Namespace},
			},
		},
	}
	if spec.Limits.OverlayBytes > 0 {
		s.Annotations["dev.gvisor.spec.rootfs.options"] = "size=" + strconv.FormatInt(spec.Limits.OverlayBytes, 10)
	}
	if r.cgroups.usable {
		s.Linux.CgroupsPath = r.cgroups.path(spec.ID)
		s.Linux.Resources = resources(spec.Limits)
	}
	return s
}

func (r *Runtime) mounts(spec sandbox.Spec) []specs.Mount {
	bind := func(source, guest string, readOnly bool) specs.Mount {
		mode := "rw"
		if readOnly {
			mode = "ro"
		}
		return specs.Mount{Destination: guest, Type: "bind", Source: source, Options: []string{"rbind", mode, "nosuid", "nodev"}}
	}
	dir := r.dir(spec.ID)
	mounts := []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc"},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs"},
		{Destination: "/dev/shm", Type: "tmpfs", Source: "tmpfs", Options: shmOptions(spec.Limits)},
		{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"ro", "nosuid", "noexec", "nodev"}},
		{Destination: "/sys/fs/cgroup", Type: "cgroup", Source: "cgroup", Options: []string{"rw"}},
		bind(r.cfg.InitDir, "/.init", true),
		bind(filepath.Join(dir, "ctl"), "/.ctl", true),
		bind(filepath.Join(dir, "resolv.conf"), "/etc/resolv.conf", true),
	}
	for _, b := range binds {
		mounts = append(mounts, bind(filepath.Join(spec.Disk, b.disk), b.guest, b.readOnly))
	}
	return mounts
}

// shmOptions bounds shared memory to half of the sandbox's.
func shmOptions(l sandbox.Limits) []string {
	options := []string{"nosuid", "nodev", "mode=1777"}
	if l.MemoryBytes > 0 {
		options = append(options, "size="+strconv.FormatInt(l.MemoryBytes/2, 10))
	}
	return options
}

func resources(l sandbox.Limits) *specs.LinuxResources {
	res := &specs.LinuxResources{}
	if l.MemoryBytes > 0 {
		res.Memory = &specs.LinuxMemory{Limit: &l.MemoryBytes}
	}
	if l.CPUs > 0 {
		period := uint64(100_000) // microseconds
		quota := int64(l.CPUs * float64(period))
		res.CPU = &specs.LinuxCPU{Period: &period, Quota: &quota}
	}
	if l.PIDs > 0 {
		res.Pids = &specs.LinuxPids{Limit: hostPIDs(l)}
	}
	return res
}

// sentryPIDs is room for the threads of the sentry and of the gofer.
const sentryPIDs = 256

// hostPIDs bounds what a sandbox takes of the host's processes. The guest's own
// bound comes first and refuses a fork as a kernel does; this one ends the
// sandbox, and is for a guest whose root has lifted its own. systrap keeps for
// each process of the guest one to hold its memory, one that makes threads,
// and as many threads as the sandbox has CPUs, of which runsc makes at least 2.
func hostPIDs(l sandbox.Limits) int64 {
	cpus := max(2, int64(math.Ceil(l.CPUs)))
	if l.CPUs == 0 {
		cpus = int64(runtime.NumCPU())
	}
	return l.PIDs*(2+cpus) + sentryPIDs
}
