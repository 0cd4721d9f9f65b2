package process

import (
	"fmt"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/seccomp"

	"mediasandbox/runtime/gate/internal/handover"
)

// installFilter kills the process, from here on, for any system call outside
// of what the Go runtime and an outbound socket need. There is no bind, no
// listen, no accept, no exec, no fork, and nothing is opened for writing.
func installFilter() error {
	program := &seccomp.Program{
		RuleSets: []seccomp.RuleSet{{Rules: allowedCalls(), Action: seccomp.Allow}},
		Options: seccomp.ProgramOptions{
			DefaultAction: seccomp.KillProcess,
			BadArchAction: seccomp.KillProcess,
			HotSyscalls:   []uintptr{unix.SYS_FUTEX, unix.SYS_READV, unix.SYS_WRITEV, unix.SYS_READ, unix.SYS_WRITE, unix.SYS_EPOLL_PWAIT},
		},
	}
	if err := program.Install(nil); err != nil {
		return fmt.Errorf("install the system call filter: %w", err)
	}
	return nil
}

func allowedCalls() seccomp.SyscallRules {
	rules := map[uintptr]seccomp.SyscallRule{}
	for _, nr := range plainCalls {
		rules[nr] = seccomp.MatchAll{}
	}
	inet := func(kind, proto uintptr) seccomp.SyscallRule {
		typ := seccomp.EqualTo(kind | unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK)
		return seccomp.Or{
			seccomp.PerArg{seccomp.EqualTo(unix.AF_INET), typ, seccomp.EqualTo(proto)},
			seccomp.PerArg{seccomp.EqualTo(unix.AF_INET6), typ, seccomp.EqualTo(proto)},
		}
	}
	rules[unix.SYS_SOCKET] = seccomp.Or{
		inet(unix.SOCK_STREAM, 0), inet(unix.SOCK_STREAM, unix.IPPROTO_TCP),
		inet(unix.SOCK_DGRAM, 0), inet(unix.SOCK_DGRAM, unix.IPPROTO_UDP),
	}
	// The configuration is read again on SIGHUP; nothing else is ever opened.
	readOnly := uintptr(unix.O_ACCMODE | unix.O_CREAT | unix.O_TRUNC)
	rules[unix.SYS_OPENAT] = seccomp.PerArg{
		seccomp.EqualTo(handover.FDDir), seccomp.AnyValue{}, seccomp.MaskedEqual(readOnly, unix.O_RDONLY),
	}
	// The runtime's threads, and no process.
	const thread = unix.CLONE_VM | unix.CLONE_FS | unix.CLONE_FILES | unix.CLONE_SIGHAND | unix.CLONE_SYSVSEM | unix.CLONE_THREAD
	rules[unix.SYS_CLONE] = seccomp.Or{
		seccomp.PerArg{seccomp.EqualTo(thread)},
		seccomp.PerArg{seccomp.EqualTo(thread | unix.CLONE_SETTLS)}, // on amd64
	}
	// Memory, but never executable.
	noExec := seccomp.MaskedEqual(unix.PROT_EXEC, 0)
	rules[unix.SYS_MMAP] = seccomp.PerArg{seccomp.AnyValue{}, seccomp.AnyValue{}, noExec}
	rules[unix.SYS_MPROTECT] = seccomp.PerArg{seccomp.AnyValue{}, seccomp.AnyValue{}, noExec}
	// The runtime names its mappings.
	rules[unix.SYS_PRCTL] = seccomp.PerArg{seccomp.EqualTo(unix.PR_SET_VMA)}
	// Signals to this process only, which the runtime sends its threads.
	rules[unix.SYS_TGKILL] = seccomp.PerArg{seccomp.EqualTo(uintptr(unix.Getpid()))}
	rules[unix.SYS_FCNTL] = seccomp.Or{
		seccomp.PerArg{seccomp.AnyValue{}, seccomp.EqualTo(unix.F_GETFL)},
		seccomp.PerArg{seccomp.AnyValue{}, seccomp.EqualTo(unix.F_SETFL)},
	}
	return seccomp.MakeSyscallRules(rules)
}

// plainCalls are allowed whatever their arguments.
var plainCalls = []uintptr{
	// descriptors
	unix.SYS_READ, unix.SYS_WRITE, unix.SYS_READV, unix.SYS_WRITEV, unix.SYS_CLOSE,
	unix.SYS_FSTAT, unix.SYS_FTRUNCATE, unix.SYS_PWRITE64,
	unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL, unix.SYS_EPOLL_PWAIT, unix.SYS_EVENTFD2,
	// sockets
	unix.SYS_CONNECT, unix.SYS_SHUTDOWN, unix.SYS_SETSOCKOPT, unix.SYS_GETSOCKOPT,
	unix.SYS_GETSOCKNAME, unix.SYS_GETPEERNAME,
	unix.SYS_SENDTO, unix.SYS_RECVFROM, unix.SYS_SENDMSG, unix.SYS_RECVMSG,
	// memory and threads
	unix.SYS_MUNMAP, unix.SYS_MADVISE, unix.SYS_MINCORE, unix.SYS_BRK,
	unix.SYS_FUTEX, unix.SYS_EXIT, unix.SYS_EXIT_GROUP, unix.SYS_GETTID, unix.SYS_GETPID,
	unix.SYS_SCHED_YIELD, unix.SYS_SCHED_GETAFFINITY,
	// time, signals, chance
	unix.SYS_NANOSLEEP, unix.SYS_CLOCK_GETTIME, unix.SYS_RESTART_SYSCALL,
	unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_SIGALTSTACK,
	unix.SYS_GETRANDOM,
}
