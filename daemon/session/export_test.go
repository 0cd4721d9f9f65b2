package session

import "mediasandbox/uploader"

// WatchWith replaces what starts the watchers of sandboxes.
func (e *Engine) WatchWith(f func(uploader.Config) (*uploader.Watcher, error)) { e.watch = f }
