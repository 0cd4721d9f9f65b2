// Package uploader publishes the files that appear in a sandbox's /outputs,
// and never half of one.
//
// Three parts stand in a row, each with an interface to the next, so that a
// crash between any two loses nothing:
//
//   - Watcher decides when a file is finished, takes a snapshot of it into a
//     Spool, and hands it to a Receiver, which records it durably.
//   - Spool keeps the snapshots, outside the sandbox's life.
//   - Uploader takes the recorded jobs from a Queue, puts the snapshots into a
//     store (Blobs), and tells the queue.
//
// The directory is written by a hostile guest: names, kinds of files and the
// moment of every change are its choice. Everything below the watched
// directory is therefore reached through descriptors and openat2, never by
// path, and what the guest says (hints, lists of open files) can only make its
// own files appear earlier or later.
//
// The package knows nothing of sandboxes, chats' records or the API; it takes
// small interfaces. The stores are in the packages local and s3, their common
// suite in blobstest. Start reading at Watcher.
package uploader
