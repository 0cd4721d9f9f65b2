package skills

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
)

// MaxArchive bounds the archive of a skill, in bytes: its files, and tar's own.
const MaxArchive = maxTotal + (maxFiles+100)*1536

// Pack writes a skill's folder as a tar archive of its regular files, the way
// Library.Import takes it. The same files give the same bytes.
func Pack(w io.Writer, folder fs.FS) error {
	out := tar.NewWriter(w)
	err := fs.WalkDir(folder, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if !d.Type().IsRegular() {
			return fmt.Errorf("%s is not a regular file: links and devices are not taken", name)
		}
		return packFile(out, folder, name)
	})
	if err == nil {
		err = out.Close()
	}
	if err != nil {
		return fmt.Errorf("pack the skill: %w", err)
	}
	return nil
}

func packFile(out *tar.Writer, folder fs.FS, name string) error {
	file, err := folder.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	header := &tar.Header{Name: name, Mode: 0o644, Size: info.Size(), Typeflag: tar.TypeReg}
	if err := out.WriteHeader(header); err != nil {
		return err
	}
	_, err = io.Copy(out, file)
	return err
}

// unpack writes the files of an archive below root. What it cannot take is a
// Problems error; the archive comes from outside, so everything is bounded.
func unpack(root *os.Root, r io.Reader) error {
	in := tar.NewReader(io.LimitReader(r, MaxArchive+1))
	var files int
	var total int64
	for {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return Problems{{File: ".", Reason: "the archive is not a tar of at most " + fmt.Sprint(MaxArchive) + " bytes: " + err.Error()}}
		}
		name := strings.TrimSuffix(strings.TrimPrefix(header.Name, "./"), "/")
		if header.Typeflag == tar.TypeDir || header.Typeflag == tar.TypeXGlobalHeader {
			continue
		}
		files++
		total += header.Size
		if reason := refuse(header, name, files, total); reason != "" {
			return Problems{{File: fmt.Sprintf("%.200s", name), Reason: reason}}
		}
		if err := unpackFile(root, name, in); err != nil {
			return err
		}
	}
}

// refuse says why an entry of an archive is not taken, or nothing.
func refuse(header *tar.Header, name string, files int, total int64) string {
	switch {
	case header.Typeflag != tar.TypeReg:
		return "it is not a regular file: links and devices are not taken"
	case !fs.ValidPath(name) || name == ".":
		return "its path leads out of the skill's folder"
	case badPath(name) != "":
		return badPath(name)
	case strings.Count(name, "/") > maxDepth:
		return fmt.Sprintf("folders may lie %d deep", maxDepth)
	case header.Size > maxFile:
		return fmt.Sprintf("it has %d bytes, a file may have %d", header.Size, maxFile)
	case files > maxFiles:
		return fmt.Sprintf("the skill has more than %d files", maxFiles)
	case total > maxTotal:
		return fmt.Sprintf("the skill has more than %d bytes", maxTotal)
	}
	return ""
}

func unpackFile(root *os.Root, name string, r io.Reader) error {
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return Problems{{File: name, Reason: "it cannot be made: a file of the archive is in its way"}}
	}
	file, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return Problems{{File: name, Reason: "it is in the archive twice"}}
	}
	defer file.Close()
	if _, err := io.Copy(file, r); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return Problems{{File: name, Reason: "the archive ends within it"}}
		}
		return fmt.Errorf("write %s: %w", name, err)
	}
	return file.Close()
}
