package session

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// chatDirs is a directory with one of its own for each chat, which goes with
// the chat.
type chatDirs struct{ dir string }

// partSuffix marks a file that is being written.
const partSuffix = ".part"

// openChatDirs removes what an earlier daemon did not finish.
func openChatDirs(dir string) (chatDirs, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return chatDirs{}, fmt.Errorf("make a directory of chats: %w", err)
	}
	parts, err := filepath.Glob(filepath.Join(dir, "*", "*"+partSuffix))
	if err != nil {
		return chatDirs{}, fmt.Errorf("look for unfinished files: %w", err)
	}
	for _, p := range parts {
		err = errors.Join(err, os.Remove(p))
	}
	return chatDirs{dir}, err
}

// of is the directory of a chat: an account's name may hold anything.
func (c chatDirs) of(chat ChatKey) string {
	sum := sha256.Sum256([]byte(chat.Account + "\x00" + chat.ID))
	return filepath.Join(c.dir, hex.EncodeToString(sum[:16]))
}

// drop removes a chat's directory.
func (c chatDirs) drop(chat ChatKey) error { return os.RemoveAll(c.of(chat)) }
