//go:build linux

package server

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"
)

// Jupyter's messaging protocol 5: a message is the delimiter, a signature and
// four JSON objects; the topic of a broadcast comes before.

var delimiter = []byte("<IDS|MSG>")

type msgHeader struct {
	ID       string `json:"msg_id"`
	Session  string `json:"session"`
	Username string `json:"username"`
	Date     string `json:"date"`
	Type     string `json:"msg_type"`
	Version  string `json:"version"`
}

// kernelMessage is a received message.
type kernelMessage struct {
	Type    string
	Parent  string // id of the request it belongs to
	Content json.RawMessage
	cut     int64 // bytes of the content that were thrown away
}

// signer makes and checks signatures with the key of the connection file.
type signer struct {
	key     []byte
	session string
}

func newSigner() *signer { return &signer{key: []byte(rand.Text()), session: rand.Text()} }

func (s *signer) sum(frames [][]byte) []byte {
	h := hmac.New(sha256.New, s.key)
	for _, f := range frames {
		h.Write(f)
	}
	return []byte(hex.EncodeToString(h.Sum(nil)))
}

// encode makes a request and returns its id.
func (s *signer) encode(msgType string, content any) (id string, frames [][]byte, err error) {
	id = rand.Text()
	header, err := json.Marshal(msgHeader{ID: id, Session: s.session, Username: "agent", Date: time.Now().UTC().Format(time.RFC3339Nano), Type: msgType, Version: "5.3"})
	if err != nil {
		return "", nil, err
	}
	body, err := json.Marshal(content)
	if err != nil {
		return "", nil, err
	}
	signed := [][]byte{header, []byte("{}"), []byte("{}"), body}
	return id, append([][]byte{delimiter, s.sum(signed)}, signed...), nil
}

// decode reads a message. One whose frames were too large keeps its type and
// parent, and a cut content without a checked signature.
func (s *signer) decode(m parts) (kernelMessage, error) {
	f := m.frames
	for len(f) > 0 && !bytes.Equal(f[0], delimiter) {
		f = f[1:]
	}
	if len(f) < 6 {
		return kernelMessage{}, fmt.Errorf("%w: a message of %d frames", errZMTP, len(m.frames))
	}
	signed := f[2:6]
	if m.cut == 0 && !hmac.Equal(f[1], s.sum(signed)) {
		return kernelMessage{}, fmt.Errorf("%w: bad signature", errZMTP)
	}
	var header, parent msgHeader
	if err := json.Unmarshal(signed[0], &header); err != nil {
		return kernelMessage{}, fmt.Errorf("%w: header: %w", errZMTP, err)
	}
	if err := json.Unmarshal(signed[1], &parent); err != nil {
		return kernelMessage{}, fmt.Errorf("%w: parent: %w", errZMTP, err)
	}
	return kernelMessage{Type: header.Type, Parent: parent.ID, Content: signed[3], cut: m.cut}, nil
}

// What is read of the contents.
type (
	streamContent struct {
		Name string `json:"name"`
		Text string `json:"text"`
	}
	displayContent struct {
		Data      map[string]json.RawMessage `json:"data"`
		Transient struct {
			ID string `json:"display_id"`
		} `json:"transient"`
	}
	errorContent struct {
		Name      string   `json:"ename"`
		Value     string   `json:"evalue"`
		Traceback []string `json:"traceback"`
	}
	stateContent struct {
		State string `json:"execution_state"`
	}
	replyContent struct {
		Status string `json:"status"`
		Count  int    `json:"execution_count"`
	}
	clearContent struct {
		Wait bool `json:"wait"`
	}
)
