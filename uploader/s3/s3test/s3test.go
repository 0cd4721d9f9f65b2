// Package s3test runs a real S3 server (versitygw, pinned in ../testserver) on
// the loopback address for tests and benchmarks. The server is built once and kept under the
// user's cache directory; the first build takes some minutes.
package s3test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"golang.org/x/sys/unix"
)

const tool = "github.com/versity/versitygw/cmd/versitygw"

// Server is a running S3 server with one empty bucket.
type Server struct {
	Endpoint, Bucket, Region     string
	AccessKeyID, SecretAccessKey string

	bin, addr string
	data      string
	cmd       *exec.Cmd
	log       bytes.Buffer
}

// Start starts a server that ends with the test.
func Start(t *testing.T) *Server {
	t.Helper()
	s, err := Launch(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Kill)
	return s
}

// Launch starts a server that keeps its objects in the directory data, until it
// is killed.
func Launch(ctx context.Context, data string) (*Server, error) {
	bin, err := build()
	if err != nil {
		return nil, err
	}
	addr, err := freeAddress()
	if err != nil {
		return nil, err
	}
	s := &Server{
		Bucket: "outputs", Region: "us-east-1", AccessKeyID: "test-access", SecretAccessKey: "test-secret-of-the-server",
		bin: bin, addr: addr, data: data, Endpoint: "http://" + addr,
	}
	if err := s.Resume(); err != nil {
		return nil, err
	}
	if _, err := s.Client().CreateBucket(ctx, &s3.CreateBucketInput{Bucket: &s.Bucket}); err != nil {
		s.Kill()
		return nil, fmt.Errorf("create bucket: %w: %s", err, s.log.String())
	}
	return s, nil
}

// Client returns a plain client of the server.
func (s *Server) Client() *s3.Client {
	return s3.New(s3.Options{
		BaseEndpoint: &s.Endpoint, Region: s.Region, UsePathStyle: true,
		Credentials:                credentials.NewStaticCredentialsProvider(s.AccessKeyID, s.SecretAccessKey, ""),
		RequestChecksumCalculation: aws.RequestChecksumCalculationWhenSupported,
	})
}

// Kill ends the server at once, as a crash does. What it stored stays.
func (s *Server) Kill() {
	if s.cmd == nil {
		return
	}
	s.cmd.Process.Kill()
	s.cmd.Wait() // says only that it was killed
	s.cmd = nil
}

// Resume starts the server again at the same address with the same data.
func (s *Server) Resume() error {
	s.cmd = exec.Command(s.bin, "--port", s.addr, "--region", s.Region, "--quiet", "posix", s.data)
	s.cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+s.AccessKeyID, "ROOT_SECRET_KEY="+s.SecretAccessKey)
	s.cmd.Dir = s.data
	s.cmd.Stdout, s.cmd.Stderr = &s.log, &s.log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := startOnOwnThread(s.cmd); err != nil {
		s.cmd = nil
		return fmt.Errorf("start S3 server: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := waitListening(ctx, s.addr); err != nil {
		s.Kill()
		return fmt.Errorf("start S3 server: %w: %s", err, s.log.String())
	}
	return nil
}

func waitListening(ctx context.Context, addr string) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			return c.Close()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return err
		}
	}
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a port: %w", err)
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// build returns the server's binary, built when the cache lacks it. The name
// holds a digest of all that it is built from.
func build() (string, error) {
	src, err := moduleDir()
	if err != nil {
		return "", err
	}
	sum, err := os.ReadFile(filepath.Join(src, "go.sum"))
	if err != nil {
		return "", fmt.Errorf("build S3 server: %w", err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("build S3 server: %w", err)
	}
	dir := filepath.Join(cache, "media-sandbox-tools")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("build S3 server: %w", err)
	}
	digest := sha256.Sum256(append(sum, runtime.Version()...))
	bin := filepath.Join(dir, "versitygw-"+hex.EncodeToString(digest[:8]))
	unlock, err := lock(bin + ".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(bin); err == nil {
		return bin, nil
	}
	cmd := exec.Command("go", "build", "-trimpath", "-o", bin+".new", tool)
	cmd.Dir = src
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=-buildvcs=false")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build S3 server: %w\n%s", err, out)
	}
	return bin, os.Rename(bin+".new", bin)
}

// moduleDir finds the module that pins the server, from a test anywhere in the
// project.
func moduleDir() (string, error) {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("find the project: %w", err)
	}
	mod := strings.TrimSpace(string(out))
	if filepath.Base(mod) != "go.mod" {
		return "", errors.New("find the project: the test does not run in a module")
	}
	return filepath.Join(filepath.Dir(mod), "uploader", "s3", "testserver"), nil
}

// lock keeps two tests from building at the same time.
func lock(name string) (unlock func(), err error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("build S3 server: %w", err)
	}
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("build S3 server: %w", err)
	}
	return func() { f.Close() }, nil
}

// startOnOwnThread starts a command that dies with its parent. Pdeathsig speaks
// of the thread that forked, and threads of a Go program may end before it.
func startOnOwnThread(cmd *exec.Cmd) error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		started <- cmd.Start()
		select {} // keeps the thread for as long as the program runs
	}()
	return <-started
}
