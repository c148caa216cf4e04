package audit

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// ErrLocked says that another process writes this journal.
var ErrLocked = errors.New("the journal is being written by another process")

// ErrClosed says that the journal was closed.
var ErrClosed = errors.New("the journal is closed")

// Journal is one open journal file. It is safe for concurrent use; the order of
// its records is the order in which Append took them.
type Journal struct {
	path string
	name string // binds the chain to its session

	mu     sync.Mutex
	f      *os.File
	size   int64 // of what is whole
	seq    uint64
	prev   string
	broken error // a failed append that could not be undone
}

// Open opens or makes the journal of name in folder, 0600, and locks it for
// this process. A last line that was torn by a crash is cut off, and the
// journal says so.
func Open(folder, name string) (*Journal, error) {
	if name == "" || name != filepath.Base(name) || strings.HasPrefix(name, ".") {
		return nil, fmt.Errorf("naming a journal: %q is no plain name", name)
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("making the journal folder: %w", err)
	}
	path := filepath.Join(folder, name+".jsonl")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the journal: %w", err)
	}
	j := &Journal{path: path, name: name, f: f, prev: genesis(name)}
	if err := j.adopt(); err != nil {
		_ = f.Close()
		return nil, err
	}
	return j, nil
}

// adopt locks the file and takes up its chain.
func (j *Journal) adopt() error {
	st, err := j.f.Stat()
	if err != nil {
		return fmt.Errorf("opening the journal: %w", err)
	}
	if !st.Mode().IsRegular() {
		return fmt.Errorf("opening the journal: %s is no regular file", j.path)
	}
	if err := unix.Flock(int(j.f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			return fmt.Errorf("locking %s: %w", j.path, ErrLocked)
		}
		return fmt.Errorf("locking the journal: %w", err)
	}
	if st.Size() == 0 {
		return nil
	}
	whole, last, torn, err := tail(j.f, st.Size())
	if err != nil {
		return err
	}
	j.size = whole
	if last != nil {
		e, err := checkLine(last)
		if err != nil {
			return fmt.Errorf("reading the last record of %s: %w", j.path, err)
		}
		j.seq, j.prev = e.Seq, e.Hash
	}
	if torn == nil {
		return nil
	}
	if err := j.f.Truncate(whole); err != nil {
		return fmt.Errorf("cutting off a torn record: %w", err)
	}
	sum := sha256.Sum256(torn)
	return j.Append(context.Background(), Event{Kind: Recovered, Bytes: int64(len(torn)), Digest: "sha256:" + hex.EncodeToString(sum[:]),
		Message: "the last line was torn by a crash and was cut off"})
}

// tail finds where the whole records end, the last of them, and what is torn
// after it.
func tail(f *os.File, size int64) (whole int64, last, torn []byte, err error) {
	start := max(0, size-2*maxRecord)
	buf := make([]byte, size-start)
	if _, err := f.ReadAt(buf, start); err != nil && !errors.Is(err, io.EOF) {
		return 0, nil, nil, fmt.Errorf("reading the journal: %w", err)
	}
	end := bytes.LastIndexByte(buf, '\n')
	if end < 0 {
		if start > 0 {
			return 0, nil, nil, errors.New("reading the journal: its last line is longer than a record may be")
		}
		return 0, nil, buf, nil
	}
	if end < len(buf)-1 {
		torn = buf[end+1:]
	}
	begin := bytes.LastIndexByte(buf[:end], '\n') + 1
	return start + int64(end) + 1, buf[begin:end], torn, nil
}

// Path is the file.
func (j *Journal) Path() string { return j.path }

// Append writes one event and returns once the kernel has it. After an error
// nothing of the event stands in the file.
func (j *Journal) Append(ctx context.Context, e Event) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.f == nil {
		return ErrClosed
	}
	if j.broken != nil {
		return j.broken
	}
	e.V, e.Seq, e.Time, e.Prev, e.Hash = Version, j.seq+1, time.Now().UTC(), j.prev, ""
	if e.Session == "" {
		e.Session = j.name
	}
	e.Resource = clip(e.Resource, MaxResource)
	e.Message, e.Reason, e.Client = clip(e.Message, 1024), clip(e.Reason, 1024), clip(e.Client, 256)
	line, hash, err := seal(e)
	if err != nil {
		return err
	}
	n, err := j.f.Write(line)
	if err == nil && n < len(line) {
		err = io.ErrShortWrite
	}
	if err != nil {
		// What was written of the line would make the next record unreadable.
		if terr := j.f.Truncate(j.size); terr != nil {
			j.broken = fmt.Errorf("the journal is damaged: %w", errors.Join(err, terr))
		}
		return fmt.Errorf("appending to the journal: %w", err)
	}
	j.size += int64(n)
	j.seq, j.prev = e.Seq, hash
	return nil
}

// Close flushes the file to the disk and gives up the lock.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.f == nil {
		return nil
	}
	err := errors.Join(j.f.Sync(), j.f.Close())
	j.f = nil
	return err
}

// genesis is what the first record of a journal follows.
func genesis(name string) string {
	sum := sha256.Sum256([]byte("pinfold journal v1\n" + name))
	return hex.EncodeToString(sum[:])
}

const hashOpen = `,"hash":"`

// seal encodes an event as its line, newline included.
func seal(e Event) (line []byte, hash string, err error) {
	body, err := json.Marshal(e)
	if err != nil {
		return nil, "", fmt.Errorf("encoding a journal record: %w", err)
	}
	body = escape(body)
	sum := sha256.Sum256(body)
	hash = hex.EncodeToString(sum[:])
	line = append(body[:len(body)-1:len(body)-1], hashOpen...)
	line = append(line, hash...)
	line = append(line, "\"}\n"...)
	if len(line) > maxRecord {
		return nil, "", fmt.Errorf("encoding a journal record: %d bytes are more than %d", len(line), maxRecord)
	}
	return line, hash, nil
}

// escape writes what a terminal or a careless reader could take for more than a
// letter as \u: DEL, the C1 controls (some terminals act on them) and the marks
// that turn the direction of text. encoding/json has done line ends, ESC, NUL
// and U+2028.
func escape(body []byte) []byte {
	s := string(body)
	special := func(r rune) bool {
		return r == 0x7f || (r >= 0x80 && r <= 0x9f) || (r >= 0x200e && r <= 0x200f) || (r >= 0x202a && r <= 0x202e) || (r >= 0x2066 && r <= 0x2069) || r == 0xfeff
	}
	if strings.IndexFunc(s, special) < 0 {
		return body
	}
	var b strings.Builder
	for _, r := range s {
		if special(r) {
			fmt.Fprintf(&b, `\u%04x`, r)
			continue
		}
		b.WriteRune(r)
	}
	return []byte(b.String())
}

func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}
