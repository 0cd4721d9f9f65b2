// Package meminfo reads the host's memory from /proc/meminfo.
package meminfo

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Names of lines.
const (
	Total     = "MemTotal"
	Available = "MemAvailable" // without swapping, as the kernel estimates it
)

// Bytes returns a line's value in bytes.
func Bytes(name string) (int64, error) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, fmt.Errorf("read the host's memory: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) == 3 && f[0] == name+":" {
			kb, err := strconv.ParseInt(f[1], 10, 64)
			return kb * 1024, err
		}
	}
	return 0, errors.New("read the host's memory: /proc/meminfo has no " + name)
}
