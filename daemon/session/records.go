package session

import (
	"fmt"
	"time"

	"mediasandbox/daemon/api"
	"mediasandbox/runtime/sandbox"
	"mediasandbox/uploader"
)

// ChatKey names a chat on the whole host.
type ChatKey struct {
	Account string `json:"account"`
	ID      string `json:"id"`
}

// String is for logs.
func (k ChatKey) String() string { return k.Account + "/" + k.ID }

// ChatRecord is what is kept of a chat.
type ChatRecord struct {
	Account   string    `json:"account"`
	ID        string    `json:"id"`
	Title     string    `json:"title,omitempty"`
	Network   string    `json:"network"` // the mode
	CreatedAt time.Time `json:"created_at"`
	// Retention is empty when the chat follows its account.
	Retention api.Retention `json:"retention,omitempty"`
	// Skills are the names of those that are active; nil means the built-in ones.
	Skills []string `json:"skills"`
	// Ordinals and Events are the highest numbers given so far.
	Ordinals int    `json:"ordinals"`
	Events   uint64 `json:"events"`
	// HadSandbox is set once the chat has had one.
	HadSandbox bool `json:"had_sandbox,omitempty"`
	// FilesLost is set when a sandbox took the place of an earlier one, until
	// a command's record says so.
	FilesLost bool          `json:"files_lost,omitempty"`
	Net       NetworkRecord `json:"net,omitzero"`
	// Turn is the open one, Turns how many were opened, Working how many
	// commands run.
	Turn    *TurnRecord `json:"turn,omitempty"`
	Turns   int         `json:"turns,omitempty"`
	Working int         `json:"working,omitempty"`
}

// Key names the chat.
func (c ChatRecord) Key() ChatKey { return ChatKey{c.Account, c.ID} }

// CommandRecord is what is kept of a command.
type CommandRecord struct {
	api.Command
	Account string            `json:"account"`
	Env     map[string]string `json:"env,omitempty"`
	Stdin   []byte            `json:"stdin,omitempty"`
	Stream  bool              `json:"stream_stdin,omitempty"`
	Size    *api.TTY          `json:"tty_size,omitempty"`
	Sandbox string            `json:"sandbox,omitempty"`
	// Made is set when it starts.
	Made *Made `json:"made,omitempty"`
	// Ending is why it is to be killed, once that is decided: a later daemon
	// does it if this one does not come to.
	Ending api.State `json:"ending,omitempty"`
}

// Key names the command's chat.
func (c CommandRecord) Key() ChatKey { return ChatKey{c.Account, c.Chat} }

// SandboxRecord is what is kept of a live sandbox.
type SandboxRecord struct {
	Spec      sandbox.Spec `json:"spec"`
	Chat      ChatKey      `json:"chat"`
	Image     string       `json:"image_sha256"`
	CreatedAt time.Time    `json:"created_at"`
	// IdleSince is when its last command ended.
	IdleSince time.Time `json:"idle_since"`
	// Inputs are the files put below /inputs, by name.
	Inputs map[string]Input `json:"inputs,omitempty"`
	// Commands counts those that started in it.
	Commands int `json:"commands,omitempty"`
	// Broken are outputs that lost their writers in that state, by their paths
	// in the guest.
	Broken map[string]FileState `json:"broken,omitempty"`
	// Publish are patterns of temporary names whose files commands asked for.
	Publish []string `json:"publish,omitempty"`
}

// Input is a file below /inputs.
type Input struct {
	// SHA256 is a file's, or of a directory the digest that treeDigest makes;
	// empty when that has been changed since.
	SHA256      string `json:"sha256"`
	Size        int64  `json:"size"`
	ContentType string `json:"content_type"`
	// URL is where it was downloaded from.
	URL string `json:"url,omitempty"`
	// Cell is the ordinal of the cell that it was copied from.
	Cell int `json:"cell,omitempty"`
}

// CellRecord is what is kept of a cell.
type CellRecord struct {
	api.Cell
	Account string `json:"account"`
	Sandbox string `json:"sandbox"`
	// Key is the file's key in the store.
	Key string `json:"key"`
	// Replaced is the key of the revision before, until this one is published.
	Replaced string `json:"replaced,omitempty"`
	// Probed is set when the media facts are known, or never will be.
	Probed bool `json:"probed,omitempty"`
}

// ChatKey names the cell's chat.
func (c CellRecord) ChatKey() ChatKey { return ChatKey{c.Account, c.Chat} }

// JobRecord is an upload that waits, with the cell it belongs to.
type JobRecord struct {
	uploader.Job
	Cell    ChatKey `json:"cell_chat"`
	Ordinal int     `json:"ordinal"`
}

// RequestRecord is a request that carried an idempotency key.
type RequestRecord struct {
	// Digest is the SHA-256 of the request's body.
	Digest  string `json:"digest"`
	Command string `json:"command"`
}

// ErrNotFound is returned by the store for what it does not have.
var ErrNotFound = fmt.Errorf("record not found")

// Store keeps the engine's records. Its transactions are serialisable and
// durable when Update returns.
type Store interface {
	View(func(Tx) error) error
	Update(func(Tx) error) error
}

// Tx reads and writes records. What is not there is ErrNotFound.
type Tx interface {
	Chat(ChatKey) (ChatRecord, error)
	Chats(account string) ([]ChatRecord, error)
	PutChat(ChatRecord) error
	// DeleteChat removes the chat with its commands, cells and events.
	DeleteChat(ChatKey) error

	Command(k ChatKey, id string) (CommandRecord, error)
	Commands(ChatKey) ([]CommandRecord, error)
	// ActiveCommands are those of all accounts that have not ended.
	ActiveCommands() ([]CommandRecord, error)
	PutCommand(CommandRecord) error

	// Turn finds a turn of the chat; Turns lists them in the order of opening.
	Turn(k ChatKey, id string) (TurnRecord, error)
	Turns(ChatKey) ([]TurnRecord, error)
	PutTurn(ChatKey, TurnRecord) error

	// Request is what was asked under an idempotency key before.
	Request(k ChatKey, key string) (RequestRecord, error)
	PutRequest(k ChatKey, key string, r RequestRecord) error

	Sandboxes() ([]SandboxRecord, error)
	PutSandbox(SandboxRecord) error
	// DeleteSandbox removes the sandbox with its known files.
	DeleteSandbox(id string) error

	// Known are the published files of a sandbox.
	Known(sandbox string) ([]uploader.Known, error)
	// KnownOrdinal is the cell that a path of the sandbox became.
	KnownOrdinal(sandbox string, p uploader.Path) (int, error)
	PutKnown(sandbox string, k uploader.Known, ordinal int) error

	Cell(k ChatKey, ordinal int) (CellRecord, error)
	Cells(ChatKey) ([]CellRecord, error)
	// PutCell also lists the cell as expiring, if it is.
	PutCell(CellRecord) error
	DeleteCell(k ChatKey, ordinal int) error

	// Expiring lists cells that are to be removed, the next first. What it names
	// may be gone, or have another expiry by now.
	Expiring(limit int) ([]Expiring, error)
	DeleteExpiring(Expiring) error

	// Doomed are keys of files in the store that no record knows any more.
	Doomed(limit int) ([]string, error)
	PutDoomed(keys []string) error
	DeleteDoomed(keys []string) error

	Account(account string) (AccountRecord, error)
	PutAccount(AccountRecord) error

	Jobs() ([]JobRecord, error)
	Job(id string) (JobRecord, error)
	PutJob(JobRecord) error
	DeleteJob(id string) error

	Events(k ChatKey, after uint64, limit int) ([]api.Event, error)
	// PutEvent also puts the event into the account's own sequence.
	PutEvent(ChatKey, api.Event) error
	// AccountEvents are those of all chats of an account that are there. It also
	// returns the last number that it looked at.
	AccountEvents(account string, after uint64, limit int) (events []api.AccountEvent, last uint64, err error)
}
