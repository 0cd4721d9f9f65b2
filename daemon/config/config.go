// Package config is the daemon's configuration: one TOML file, decoded
// strictly, with a default for everything. Loading has no side effects.
package config

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/pelletier/go-toml/v2"

	"mediasandbox/daemon/api"
	"mediasandbox/runtime/sandbox"
)

// DefaultFile is read when it exists and no other is named.
const DefaultFile = "/etc/media-sandbox/config.toml"

// Config is the whole file.
type Config struct {
	// Version of the file's format; 1.
	Version int     `toml:"version"`
	Paths   Paths   `toml:"paths"`
	Limits  Limits  `toml:"limits"`
	Network Network `toml:"network"`
	Access  Access  `toml:"access"`
	Metrics Metrics `toml:"metrics"`
	Store   Store   `toml:"store"`
}

// Paths says where the daemon keeps and finds things.
type Paths struct {
	// StateDir is kept for good; RunDir until the host restarts.
	StateDir string `toml:"state_dir"`
	RunDir   string `toml:"run_dir"`
	Socket   string `toml:"socket"`
	// Image is an EROFS image; empty finds the built one.
	Image string `toml:"image"`
	// LibexecDir holds runsc, sandbox-gate and the directory init; empty finds
	// them beside sandboxd.
	LibexecDir string `toml:"libexec_dir"`
}

// Limits of the product; sizes are written like "4GiB", durations like "5m".
type Limits struct {
	Memory  Size    `toml:"memory"`
	CPUs    float64 `toml:"cpus"`
	PIDs    int64   `toml:"pids"`
	Overlay Size    `toml:"overlay"`
	Disk    Size    `toml:"disk"`
	Output  Size    `toml:"output"`
	// KeptInputs bounds the copies of inputs that a chat keeps for replays.
	KeptInputs Size `toml:"kept_inputs"`
	// Download bounds an input that is downloaded.
	Download Size     `toml:"download"`
	IdleLife Duration `toml:"idle_life"`
	// Timeout and MaxTimeout are a command's, TurnBudget is a turn's.
	Timeout    Duration `toml:"timeout"`
	MaxTimeout Duration `toml:"max_timeout"`
	TurnBudget Duration `toml:"turn_budget"`
	// Running is how many commands of a chat run at a time.
	Running int `toml:"running"`
	// Sandboxes bounds the live sandboxes of the host, AccountSandboxes those
	// of one account.
	Sandboxes        int `toml:"sandboxes"`
	AccountSandboxes int `toml:"account_sandboxes"`
	// AccountRunning bounds the running commands of an account, Waiting those
	// of the host that wait.
	AccountRunning int `toml:"account_running"`
	Waiting        int `toml:"waiting"`
	// AccountStored bounds the bytes of an account's cells, AccountDaily those
	// that it publishes in a day; 0 is no limit.
	AccountStored Size `toml:"account_stored"`
	AccountDaily  Size `toml:"account_daily"`
	// DiskReserve is what stays free of the host's disk.
	DiskReserve Size `toml:"disk_reserve"`
	// MemoryReserve is what stays available of the host's memory when another
	// sandbox is booted.
	MemoryReserve Size `toml:"memory_reserve"`
	// WarmPython keeps a Python with its imports done in each sandbox.
	WarmPython bool `toml:"warm_python"`
	// Pool is how many booted sandboxes wait for a chat.
	Pool int `toml:"pool"`
}

// Network is the operator's part of what sandboxes may reach; chats narrow it.
type Network struct {
	// Mode is the widest that a chat can have.
	Mode string `toml:"mode"`
	// Rules and Services are written as in the API; see package sandbox.
	Rules    []sandbox.NetworkRule    `toml:"rules"`
	Services []sandbox.NetworkService `toml:"services"`
	// Flows bounds what a chat has open at once; Bandwidth is a chat's in a
	// second, Total over its life. 0 means no limit.
	Flows     int  `toml:"flows"`
	Bandwidth Size `toml:"bandwidth"`
	Total     Size `toml:"total"`
}

// Access says who may use the socket and act for others.
type Access struct {
	// Group owns the socket; empty leaves it to root.
	Group          string   `toml:"group"`
	OperatorUIDs   []uint32 `toml:"operator_uids"`
	OperatorGroups []string `toml:"operator_groups"`
}

// Metrics says where the metrics can be read beside the API's socket.
type Metrics struct {
	// Listen is an address and port of loopback; empty is nowhere.
	Listen string `toml:"listen"`
}

// Store says where cells' files go.
type Store struct {
	Kind string `toml:"kind"` // local or s3
	// Retention is how long cells are kept where nobody says otherwise.
	Retention api.Retention `toml:"retention"`
	S3        S3            `toml:"s3"`
}

// S3 names a bucket. Credentials come from the usual AWS sources, or from the
// files named here.
type S3 struct {
	Bucket        string   `toml:"bucket"`
	Region        string   `toml:"region"`
	Endpoint      string   `toml:"endpoint"`
	Prefix        string   `toml:"prefix"`
	PathStyle     bool     `toml:"path_style"`
	PublicBaseURL string   `toml:"public_base_url"`
	PresignExpiry Duration `toml:"presign_expiry"`
	StorageClass  string   `toml:"storage_class"`
	SSE           string   `toml:"sse"`
	AccessKeyFile string   `toml:"access_key_file"`
	SecretKeyFile string   `toml:"secret_key_file"`
}

// Size is a number of bytes.
type Size int64

// UnmarshalText reads sizes like "512MiB".
func (s *Size) UnmarshalText(text []byte) error {
	n, err := humanize.ParseBytes(string(text))
	if err != nil || n > 1<<62 {
		return fmt.Errorf("%q is not a size: write it like \"4GiB\"", text)
	}
	*s = Size(n)
	return nil
}

// Duration is a length of time.
type Duration time.Duration

// UnmarshalText reads durations like "5m".
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("%q is not a duration: write it like \"5m\" or \"90s\"", text)
	}
	*d = Duration(v)
	return nil
}

// Default returns the configuration of an empty file.
func Default() Config {
	return Config{
		Version: 1,
		Paths: Paths{
			StateDir: "/var/lib/media-sandbox",
			RunDir:   "/run/media-sandbox",
			Socket:   api.DefaultSocket,
		},
		Limits: Limits{
			Memory: 4 << 30, CPUs: 2, PIDs: 1024, Overlay: 8 << 30, Disk: 8 << 30, Output: 16 << 20, KeptInputs: 4 << 30, Download: 2 << 30,
			IdleLife: Duration(5 * time.Minute), Pool: 1,
			Timeout: Duration(api.DefaultTimeout), MaxTimeout: Duration(api.MaxTimeout), TurnBudget: Duration(api.TurnBudget),
			Running: api.MaxRunning, WarmPython: true, Sandboxes: 64, AccountSandboxes: 32,
			AccountRunning: 64, Waiting: 1024, DiskReserve: 1 << 30, MemoryReserve: 512 << 20,
		},
		Network: Network{
			Mode: string(sandbox.NetworkPublic), Rules: []sandbox.NetworkRule{}, Services: []sandbox.NetworkService{}, Flows: 2048,
		},
		Store: Store{Kind: "local", Retention: api.RetentionForever, S3: S3{PresignExpiry: Duration(24 * time.Hour)}},
	}
}

// Load reads a file over the defaults. An empty name reads DefaultFile if it
// exists.
func Load(path string) (Config, error) {
	name := path
	if name == "" {
		name = DefaultFile
	}
	text, err := os.ReadFile(name)
	if errors.Is(err, os.ErrNotExist) && path == "" {
		return Default(), nil
	}
	if err != nil {
		return Config{}, fmt.Errorf("read configuration: %w", err)
	}
	return parse(name, text)
}

func parse(name string, text []byte) (Config, error) {
	c := Default()
	err := toml.NewDecoder(strings.NewReader(string(text))).DisallowUnknownFields().Decode(&c)
	var strict *toml.StrictMissingError
	var decode *toml.DecodeError
	switch {
	case errors.As(err, &strict):
		row, _ := strict.Errors[0].Position()
		return c, fmt.Errorf("%s:%d: unknown key %s", name, row, strings.Join(strict.Errors[0].Key(), "."))
	case errors.As(err, &decode):
		row, col := decode.Position()
		return c, fmt.Errorf("%s:%d:%d: %s", name, row, col, strings.TrimPrefix(decode.Error(), "toml: "))
	case err != nil:
		return c, fmt.Errorf("%s: %w", name, err)
	}
	if err := errors.Join(checkDurations(text), c.Validate()); err != nil {
		return c, fmt.Errorf("%s: %w", name, err)
	}
	return c, nil
}

// checkDurations refuses durations that are bare numbers: the decoder takes
// them for nanoseconds.
func checkDurations(text []byte) error {
	var doc map[string]any
	if err := toml.Unmarshal(text, &doc); err != nil {
		return err
	}
	var errs []error
	var walk func(prefix string, doc map[string]any, t reflect.Type)
	walk = func(prefix string, doc map[string]any, t reflect.Type) {
		for i := range t.NumField() {
			f := t.Field(i)
			key := f.Tag.Get("toml")
			value, ok := doc[key]
			if table, isTable := value.(map[string]any); isTable && f.Type.Kind() == reflect.Struct {
				walk(prefix+key+".", table, f.Type)
			} else if _, isText := value.(string); ok && !isText && f.Type == reflect.TypeFor[Duration]() {
				errs = append(errs, fmt.Errorf("%s%s is the number %v: write it like \"5m\" or \"90s\"", prefix, key, value))
			}
		}
	}
	walk("", doc, reflect.TypeFor[Config]())
	return errors.Join(errs...)
}

// maxPresign is the longest that S3 signs a URL for.
const maxPresign = 7 * 24 * time.Hour

// Validate says what is wrong with the values, one error for all.
func (c Config) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(c.Version == 1, "version is %d, this program reads 1", c.Version)
	for key, path := range map[string]string{
		"paths.state_dir": c.Paths.StateDir, "paths.run_dir": c.Paths.RunDir, "paths.socket": c.Paths.Socket,
	} {
		check(filepath.IsAbs(path), "%s is %q, it must be an absolute path", key, path)
	}
	l := c.Limits
	check(l.Memory >= 256<<20, "limits.memory is %s, it must be at least 256 MiB", humanize.IBytes(uint64(l.Memory)))
	check(l.CPUs >= 0.01 && l.CPUs <= 1024, "limits.cpus is %g, it must be between 0.01 and 1024", l.CPUs)
	check(l.PIDs >= 64, "limits.pids is %d, it must be at least 64", l.PIDs)
	check(l.Overlay >= 64<<20, "limits.overlay is %s, it must be at least 64 MiB", humanize.IBytes(uint64(l.Overlay)))
	check(l.Disk >= 64<<20, "limits.disk is %s, it must be at least 64 MiB", humanize.IBytes(uint64(l.Disk)))
	check(l.Output >= 64<<10, "limits.output is %s, it must be at least 64 KiB", humanize.IBytes(uint64(l.Output)))
	check(l.Download >= 0, "limits.download is %d, it must not be below 0", l.Download)
	check(l.KeptInputs >= 0, "limits.kept_inputs is %d, it must not be below 0", l.KeptInputs)
	check(l.IdleLife >= Duration(time.Second), "limits.idle_life is %s, it must be at least 1s", time.Duration(l.IdleLife))
	check(l.MaxTimeout >= Duration(time.Second), "limits.max_timeout is %s, it must be at least 1s", time.Duration(l.MaxTimeout))
	check(l.Timeout > 0 && l.Timeout <= l.MaxTimeout, "limits.timeout is %s, it must be between 0 and limits.max_timeout", time.Duration(l.Timeout))
	check(l.TurnBudget >= Duration(time.Second), "limits.turn_budget is %s, it must be at least 1s", time.Duration(l.TurnBudget))
	check(l.Running >= 1 && l.Running <= 1024, "limits.running is %d, it must be between 1 and 1024", l.Running)
	check(l.Sandboxes >= 1, "limits.sandboxes is %d, it must be at least 1", l.Sandboxes)
	check(l.AccountRunning >= 1, "limits.account_running is %d, it must be at least 1", l.AccountRunning)
	check(l.Waiting >= 1, "limits.waiting is %d, it must be at least 1", l.Waiting)
	check(l.AccountStored >= 0, "limits.account_stored is %d, it must not be below 0", l.AccountStored)
	check(l.AccountDaily >= 0, "limits.account_daily is %d, it must not be below 0", l.AccountDaily)
	check(l.DiskReserve >= 0, "limits.disk_reserve is %d, it must not be below 0", l.DiskReserve)
	check(l.MemoryReserve >= 0, "limits.memory_reserve is %d, it must not be below 0", l.MemoryReserve)
	check(l.AccountSandboxes >= 1, "limits.account_sandboxes is %d, it must be at least 1", l.AccountSandboxes)
	check(l.Pool >= 0 && l.Pool <= 64, "limits.pool is %d, it must be between 0 and 64", l.Pool)
	errs = append(errs, c.Network.validate()...)
	if c.Metrics.Listen != "" {
		at, err := netip.ParseAddrPort(c.Metrics.Listen)
		check(err == nil && at.Addr().IsLoopback() && at.Port() != 0,
			"metrics.listen is %q, it must be an address of loopback with a port, like 127.0.0.1:9477", c.Metrics.Listen)
	}
	check(c.Store.Kind == "local" || c.Store.Kind == "s3", "store.kind is %q, it must be local or s3", c.Store.Kind)
	check(slices.Contains(api.Retentions(), c.Store.Retention), "store.retention is %q, it must be one of %v", c.Store.Retention, api.Retentions())
	if c.Store.Kind == "s3" {
		check(c.Store.S3.Bucket != "", "store.s3.bucket is missing")
		check(c.Store.S3.Region != "" || c.Store.S3.Endpoint != "", "store.s3.region is missing")
		check(c.Store.S3.PresignExpiry > 0 && c.Store.S3.PresignExpiry <= Duration(maxPresign),
			"store.s3.presign_expiry is %s, it must be at most 168h", time.Duration(c.Store.S3.PresignExpiry))
		check((c.Store.S3.AccessKeyFile == "") == (c.Store.S3.SecretKeyFile == ""), "store.s3: access_key_file and secret_key_file go together")
	}
	return errors.Join(errs...)
}

func (n Network) validate() (errs []error) {
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	_, err := sandbox.ParseNetworkMode(n.Mode)
	check(err == nil && n.Mode != "", "network.mode is %q, it must be public, allowlist or none", n.Mode)
	check(len(n.Rules) <= sandbox.MaxNetworkRules, "network.rules has %d rules, it may have %d", len(n.Rules), sandbox.MaxNetworkRules)
	check(len(n.Services) <= sandbox.MaxNetworkRules, "network.services has %d services, it may have %d", len(n.Services), sandbox.MaxNetworkRules)
	check(n.Flows >= 0, "network.flows is %d, it must not be negative", n.Flows)
	check(n.Bandwidth == 0 || n.Bandwidth >= minBandwidth, "network.bandwidth is %s, it must be at least 16 KiB, or 0B for no limit", humanize.IBytes(uint64(n.Bandwidth)))
	return errs
}

// minBandwidth is what a chat needs to get anywhere, in bytes a second.
const minBandwidth = 16 << 10

// MarshalText writes a size in bytes.
func (s Size) MarshalText() ([]byte, error) {
	return []byte(strconv.FormatInt(int64(s), 10) + "B"), nil
}

// MarshalText writes a duration as Go does.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// TOML returns the configuration as a file.
func (c Config) TOML() []byte {
	text, err := toml.Marshal(c)
	if err != nil {
		panic(fmt.Sprintf("config: its own type can't be written: %v", err)) // never
	}
	return text
}
