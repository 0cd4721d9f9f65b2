package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// checkRecords refuses a state directory that has files of chats but no
// records of them: a daemon over an empty database would take living sandboxes
// for nobody's and remove them.
func checkRecords(stateDir string) error {
	db := filepath.Join(stateDir, "state.db")
	st, err := os.Stat(db)
	if err == nil && st.Size() > 0 {
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("look at the state: %w", err)
	}
	for _, dir := range []string{"disks", "output", "spool", "store/keys"} {
		entries, err := os.ReadDir(filepath.Join(stateDir, dir))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("look at the state: %w", err)
		}
		if len(entries) > 0 {
			return fmt.Errorf("%s is missing or empty, but %s is not: restore it from a backup, or move all of %s away to begin anew", db, dir, stateDir)
		}
	}
	return nil
}
