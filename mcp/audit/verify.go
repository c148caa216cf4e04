package audit

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// BadRecord names the first record at which a journal is not what was written.
type BadRecord struct {
	Line int    // from 1
	Seq  uint64 // as the record says; 0 when it cannot be read
	Why  string
}

func (e *BadRecord) Error() string {
	return fmt.Sprintf("record %d (seq %d): %s", e.Line, e.Seq, e.Why)
}

// Report is what Verify found in a sound journal.
type Report struct {
	Records int
	Torn    bool     // bytes after the last whole record: a crash in mid-write
	Ended   bool     // the last record is a session's end
	Open    []string // calls with an intent and no outcome: a crash in mid-call, or still running
}

// Verify reads a journal and checks every record and the chain. It returns a
// *BadRecord for the first one that was changed, removed, added or moved.
func Verify(path string) (Report, error) {
	var rep Report
	open := map[string]bool{}
	var order []string
	err := Read(path, func(line int, e Event) error {
		rep.Records++
		rep.Ended = e.Kind == SessionEnd
		switch e.Kind {
		case Intent:
			open[e.Call] = true
			order = append(order, e.Call)
		case Outcome:
			delete(open, e.Call)
		}
		return nil
	})
	if errors.Is(err, errTorn) {
		rep.Torn, err = true, nil
	}
	for _, c := range order {
		if open[c] {
			rep.Open = append(rep.Open, c)
		}
	}
	return rep, err
}

var errTorn = errors.New("the last line is torn")

// Read calls f for every record of a journal in order, each checked against the
// chain. It ends at the first error.
func Read(path string, f func(line int, e Event) error) error {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("reading the journal: %w", err)
	}
	defer file.Close() //nolint:errcheck // read only
	name := strings.TrimSuffix(filepath.Base(path), ".jsonl")
	prev, seq := genesis(name), uint64(0)
	r := bufio.NewReaderSize(file, maxRecord+1)
	for n := 1; ; n++ {
		line, err := r.ReadSlice('\n')
		switch {
		case errors.Is(err, io.EOF) && len(line) == 0:
			return nil
		case errors.Is(err, io.EOF):
			if _, err := checkLine(line[:len(line)-1]); err == nil {
				return &BadRecord{Line: n, Why: "its line end was changed"}
			}
			return errTorn
		case errors.Is(err, bufio.ErrBufferFull):
			return &BadRecord{Line: n, Why: "is longer than a record may be"}
		case err != nil:
			return fmt.Errorf("reading the journal: %w", err)
		}
		e, err := checkLine(line[:len(line)-1])
		switch {
		case err != nil:
			return &BadRecord{Line: n, Seq: e.Seq, Why: err.Error()}
		case e.Seq != seq+1:
			return &BadRecord{Line: n, Seq: e.Seq, Why: fmt.Sprintf("should be number %d: a record is missing, added or moved", seq+1)}
		case e.Prev != prev:
			return &BadRecord{Line: n, Seq: e.Seq, Why: "does not follow the record before it"}
		}
		seq, prev = e.Seq, e.Hash
		if err := f(n, e); err != nil {
			return err
		}
	}
}

// checkLine decodes one line and checks its own hash, which covers every byte
// before it.
func checkLine(line []byte) (Event, error) {
	var e Event
	const tailLen = len(hashOpen) + 2*sha256.Size + len(`"}`)
	cut := len(line) - tailLen
	if cut < 1 || !bytes.HasPrefix(line[cut:], []byte(hashOpen)) || !bytes.HasSuffix(line, []byte(`"}`)) {
		return e, errors.New("has no hash at its end")
	}
	body := append(bytes.Clone(line[:cut]), '}')
	sum := sha256.Sum256(body)
	want := hex.EncodeToString(sum[:])
	err := json.Unmarshal(line, &e)
	if got := string(line[cut+len(hashOpen) : len(line)-2]); got != want {
		return e, errors.New("was changed: its hash does not fit")
	}
	if err != nil {
		return e, fmt.Errorf("is no record: %w", err)
	}
	if e.V != Version {
		return e, fmt.Errorf("has version %d, this reader knows %d", e.V, Version)
	}
	return e, nil
}
