// Package systemd holds the units; its tests hold them against the daemon, and
// against systemd's own programs where the host has them.
package systemd

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"mediasandbox/daemon/api"
	"mediasandbox/internal/testenv"
)

const daemonPath = "/usr/libexec/media-sandbox/sandboxd"

// unit maps "Section.Key" to its values in order.
type unit map[string][]string

func readUnit(t *testing.T, name string) unit {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	u, section := make(unit), ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || line[0] == '#':
		case line[0] == '[':
			section = strings.Trim(line, "[]")
		default:
			key, value, ok := strings.Cut(line, "=")
			if !ok {
				t.Fatalf("%s: %q is not KEY=VALUE", name, line)
			}
			u[section+"."+key] = append(u[section+"."+key], value)
		}
	}
	return u
}

func TestServiceKeepsSandboxes(t *testing.T) {
	u := readUnit(t, "media-sandbox.service")
	for key, want := range map[string]string{
		"Service.Type":      "notify",
		"Service.ExecStart": daemonPath + " serve",
		"Service.KillMode":  "process",
		"Service.OOMPolicy": "continue",
		"Service.Delegate":  "yes",
		"Unit.Requires":     "media-sandbox.socket",
	} {
		if got := u[key]; !slices.Equal(got, []string{want}) {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
	if u["Service.RestrictSUIDSGID"] != nil {
		t.Error("RestrictSUIDSGID forbids openat2, and no output could be opened")
	}
	for key := range u {
		if name := strings.TrimPrefix(key, "Service."); ownMounts(name) {
			t.Errorf("%s gives the unit a mount namespace, and a restart would lose the sandboxes' networks", name)
		}
	}
}

// ownMounts tells whether an option makes systemd give the unit a mount
// namespace of its own (systemd.exec(5)).
func ownMounts(option string) bool {
	for _, prefix := range []string{
		"Private", "ProtectSystem", "ProtectHome", "ProtectProc", "ProcSubset", "ProtectKernel", "ProtectControlGroups",
		"ProtectClock", "ProtectHostname", "ReadWritePaths", "ReadOnlyPaths", "InaccessiblePaths", "ExecPaths", "NoExecPaths",
		"Bind", "TemporaryFileSystem", "RootDirectory", "RootImage", "MountAPIVFS", "MountFlags", "MountImages", "ExtensionImages",
		"ExtensionDirectories", "JoinsNamespaceOf", "DynamicUser", "LogNamespace", "RuntimeDirectory",
	} {
		if strings.HasPrefix(option, prefix) {
			return true
		}
	}
	return false
}

func TestSocketIsTheAPIs(t *testing.T) {
	u := readUnit(t, "media-sandbox.socket")
	for key, want := range map[string]string{
		"Socket.ListenStream": api.DefaultSocket, "Socket.SocketMode": "0660", "Socket.SocketGroup": "media-sandbox",
	} {
		if got := u[key]; !slices.Equal(got, []string{want}) {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
}

// hostTool returns a program of systemd's. A host without systemd has none:
// what asks for it checks nothing there, and says so.
func hostTool(t *testing.T, name string) (string, bool) {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Logf("this host has no %s: only our own checks were made", name)
		return "", false
	}
	return path, true
}

func run(t *testing.T, program string, args ...string) {
	t.Helper()
	out, err := exec.Command(program, args...).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out)
	}
}

func TestUnitsAreValid(t *testing.T) {
	analyze, ok := hostTool(t, "systemd-analyze")
	if !ok {
		return
	}
	dir := t.TempDir()
	var units []string
	for _, name := range []string{"media-sandbox.service", "media-sandbox.socket"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		// systemd wants to see the program.
		text = []byte(strings.ReplaceAll(string(text), daemonPath, testenv.Bin(t, "sandboxd")))
		units = append(units, filepath.Join(dir, name))
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	run(t, analyze, append([]string{"verify", "--man=no"}, units...)...)
}

func TestUserAndDirectoryAreMade(t *testing.T) {
	sysusers, hasUsers := hostTool(t, "systemd-sysusers")
	tmpfiles, hasFiles := hostTool(t, "systemd-tmpfiles")
	root := t.TempDir()
	for _, dir := range []string{"etc", "run"} {
		if err := os.Mkdir(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	if hasUsers {
		out, err := exec.Command(sysusers, "--root="+root, filepath.Join(here, "media-sandbox.sysusers.conf")).CombinedOutput()
		groups, readErr := os.ReadFile(filepath.Join(root, "etc", "group"))
		if err != nil || readErr != nil || !strings.Contains(string(groups), "media-sandbox:") {
			t.Errorf("systemd-sysusers: %v, %v: %s%s", err, readErr, out, groups)
		}
	}
	if hasFiles {
		run(t, tmpfiles, "--create", "--root="+root, filepath.Join(here, "media-sandbox.tmpfiles.conf"))
		st, err := os.Stat(filepath.Join(root, filepath.Dir(api.DefaultSocket)))
		if err != nil || st.Mode().Perm() != 0o755 {
			t.Errorf("systemd-tmpfiles: %v, %v", st, err)
		}
	}
}
