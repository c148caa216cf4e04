package mcp

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// strange says what is wrong with where a request comes from. A page of another
// origin, and a name that was rebound to this machine, must reach nothing.
func (f *front) strange(r *http.Request) string {
	if !loopbackHost(r.Host) && !slices.Contains(f.o.Hosts, r.Host) {
		return "the Host header names another machine"
	}
	for _, origin := range r.Header.Values("Origin") {
		if origin != "http://"+r.Host && !slices.Contains(f.o.Origins, origin) {
			return "pages of this origin may not call"
		}
	}
	return ""
}

// loopbackHost reports whether a Host header names this machine by loopback.
func loopbackHost(host string) bool {
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		name = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	} else if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return false
	}
	if strings.EqualFold(name, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(name)
	return err == nil && ip.IsLoopback()
}

func (f *front) authorized(r *http.Request) bool {
	if f.o.NoAuth {
		a, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
		if a == nil {
			return false
		}
		ap, err := netip.ParseAddrPort(a.String())
		return err == nil && ap.Addr().Unmap().IsLoopback()
	}
	all := r.Header.Values("Authorization")
	if len(all) != 1 {
		return false
	}
	scheme, token, _ := strings.Cut(all[0], " ")
	sum := sha256.Sum256([]byte(token))
	return strings.EqualFold(scheme, "Bearer") && subtle.ConstantTimeCompare(sum[:], f.token[:]) == 1
}

// refuse answers with a status and one sentence.
func refuse(w http.ResponseWriter, status int, why string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": why})
}

// answer writes a JSON-RPC error with a status.
func answer(w http.ResponseWriter, status int, e *rpcError) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(e.bytes(), '\n'))
}

// body reads a request's body within its bounds. It has answered when ok is
// false.
func (f *front) body(w http.ResponseWriter, r *http.Request) (raw []byte, ok bool) {
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case err != nil || media != "application/json":
		refuse(w, http.StatusUnsupportedMediaType, "Content-Type must be application/json")
		return nil, false
	case r.Header.Get("Content-Encoding") != "" && !strings.EqualFold(r.Header.Get("Content-Encoding"), "identity"):
		refuse(w, http.StatusUnsupportedMediaType, "Content-Encoding: send the body as it is")
		return nil, false
	case r.ContentLength > maxBody:
		w.Header().Set("Connection", "close")
		refuse(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("the body is larger than %d bytes", maxBody))
		return nil, false
	}
	c := http.NewResponseController(w)
	_ = c.SetReadDeadline(time.Now().Add(f.bodyFor))
	raw, err = io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		refuse(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("the body is larger than %d bytes", maxBody))
		return nil, false
	case errors.Is(err, os.ErrDeadlineExceeded):
		w.Header().Set("Connection", "close")
		refuse(w, http.StatusRequestTimeout, fmt.Sprintf("the body took longer than %v", f.bodyFor))
		return nil, false
	case err != nil:
		refuse(w, http.StatusBadRequest, "the body could not be read")
		return nil, false
	}
	_ = c.SetReadDeadline(time.Time{})
	return raw, true
}
