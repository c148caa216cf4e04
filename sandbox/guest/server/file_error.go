//go:build linux

package server

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"pinfold.dev/pinfold/sandbox"
)

// fileError words the failure of a file operation; path is as the caller gave it.
func fileError(op, path string, err error) error {
	if err == nil {
		return nil
	}
	var own *sandbox.Error
	if errors.As(err, &own) {
		return err
	}
	e := &sandbox.Error{Cause: err, Details: map[string]any{"path": path}}
	set := func(code sandbox.Code, reason, hint, format string, args ...any) {
		e.Code, e.Reason, e.Hint, e.Message = code, reason, hint, fmt.Sprintf(format, args...)
	}
	switch {
	case errors.Is(err, errMagic):
		set(sandbox.PermissionDenied, "magic_link", "Look at processes with shell_run, as in cat /proc/PID/status.", "%s: file tools do not follow /proc into a process", path)
	case errors.Is(err, unix.ELOOP):
		set(sandbox.FailedPrecondition, "link_loop", "Name the file itself, or mend the links.", "%s: too many links, or links in a circle", path)
	case errors.Is(err, unix.ENOENT):
		set(sandbox.NotFound, "", "Look with file_list.", "%s does not exist", path)
		if strings.HasPrefix(path, "~") || strings.HasPrefix(path, "$") {
			e.Hint = "~ and $NAME are not expanded here; write the path out, as in " + sandbox.HomeDir + "/x."
		}
	case errors.Is(err, unix.ENOTDIR):
		set(sandbox.NotFound, "not_a_directory", "Look with file_list.", "%s: a part of the path is not a folder", path)
	case errors.Is(err, unix.EISDIR):
		set(sandbox.FailedPrecondition, "is_a_directory", "Name a file in it; file_list shows them.", "%s is a folder", path)
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		set(sandbox.PermissionDenied, "file_mode", "Commands run as uid 1000 without more rights; look at owner and mode with file_list.", "%s: the sandbox's own file permissions do not let uid 1000 %s this", path, op)
	case errors.Is(err, unix.EROFS):
		set(sandbox.PermissionDenied, "read_only", "Write under "+sandbox.WorkspaceDir+", "+sandbox.HomeDir+" or /tmp.", "%s is on a read-only file system", path)
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		set(sandbox.ResourceExhausted, "no_space", "Remove what is not needed; nothing of the file was changed.", "%s: no space left on its file system", path)
	case errors.Is(err, unix.EFBIG):
		set(sandbox.ResourceExhausted, "too_large", "Write a smaller file.", "%s: larger than a file may be here", path)
	case errors.Is(err, unix.ENAMETOOLONG):
		set(sandbox.InvalidArgument, "name_too_long", "Use a shorter path.", "%s: the path is too long", short(path))
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.ENOMEM):
		set(sandbox.ResourceExhausted, "", "End what is not needed with shell_kill and try again.", "%s: the sandbox is out of file handles or memory", path)
	case errors.Is(err, unix.ENXIO), errors.Is(err, unix.ENODEV), errors.Is(err, unix.EOPNOTSUPP):
		set(sandbox.FailedPrecondition, "not_a_file", "Use a regular file; shell_run works with the others.", "%s is a socket, pipe or device", path)
	case errors.Is(err, unix.ETXTBSY), errors.Is(err, unix.EBUSY):
		set(sandbox.FailedPrecondition, "busy", "End what uses it, then try again.", "%s is in use", path)
	default:
		set(sandbox.FailedPrecondition, "io", "Look at it with shell_run.", "%s: could not %s it (%v)", path, op, err)
	}
	return e
}

// notRegular is the refusal of a FIFO, device or socket where a file is needed.
func notRegular(path string, mode uint32) error {
	e := sandbox.Errorf(sandbox.FailedPrecondition, "Use a regular file; shell_run works with the others.", "%s is a %s, not a regular file", path, typeName(mode))
	e.Reason = "not_a_file"
	if mode&unix.S_IFMT == unix.S_IFDIR {
		e.Reason, e.Hint = "is_a_directory", "Name a file in it; file_list shows them."
		e.Message = path + " is a folder"
	}
	return e
}

func typeName(mode uint32) string {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return "file"
	case unix.S_IFDIR:
		return "directory"
	case unix.S_IFLNK:
		return "symlink"
	case unix.S_IFIFO:
		return "fifo"
	case unix.S_IFSOCK:
		return "socket"
	}
	return "device"
}

func short(s string) string {
	if len(s) > 120 {
		return s[:120] + "…"
	}
	return s
}

// suggest adds the names most like the missing one to a not_found error. It
// must run inside as.
func (f *files) suggest(err error, path string) error {
	var e *sandbox.Error
	if !errors.As(err, &e) || e.Code != sandbox.NotFound {
		return err
	}
	cut := strings.LastIndexByte(strings.TrimRight(path, "/"), '/')
	if cut < 0 {
		return err
	}
	folder, want := path[:cut+1], strings.ToLower(strings.Trim(path[cut+1:], "/"))
	fd, oerr := f.open(folder, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if oerr != nil {
		return err
	}
	defer unix.Close(fd)
	type scored struct {
		name  string
		score int
	}
	var near []scored
	seen := 0
	_ = readDir(fd, func(name string, _ uint8) bool {
		if s := likeness(want, strings.ToLower(name)); s > 0 {
			near = append(near, scored{name, s})
		}
		seen++
		return seen < 5000
	})
	slices.SortFunc(near, func(a, b scored) int {
		if a.score != b.score {
			return b.score - a.score
		}
		return strings.Compare(a.name, b.name)
	})
	var names []string
	for _, n := range near[:min(3, len(near))] {
		names = append(names, encodeName(n.name))
	}
	if len(names) > 0 {
		e.Hint = "Did you mean " + strings.Join(names, " or ") + "? file_list shows what is there."
		if e.Details == nil {
			e.Details = map[string]any{}
		}
		e.Details["candidates"] = names
	}
	return err
}

// likeness is 0 for names that have nothing to do with each other.
func likeness(a, b string) int {
	if a == b {
		return 1000
	}
	stem := func(s string) string { s, _, _ = strings.Cut(s, "."); return s }
	if len(a) > 64 || len(b) > 64 {
		return 0
	}
	d := distance(a, b)
	switch {
	case d <= 1+len(a)/5:
		return 500 - d
	case len(a) > 2 && strings.HasPrefix(b, a), stem(a) != "" && stem(a) == stem(b):
		return 100
	}
	return 0
}

// distance is Levenshtein's, for short strings.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diag := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diag
			if a[i] != b[j] {
				cost++
			}
			diag = row[j+1]
			row[j+1] = min(cost, row[j]+1, diag+1)
		}
	}
	return row[len(b)]
}
