package browser

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
)

// fixtures serves one page per case; the paths are the case ids.
var fixtures fixtureServer

type fixtureServer struct {
	once  sync.Once
	s     *httptest.Server
	stop  chan struct{} // ends responses that never end
	pages map[string]http.HandlerFunc
}

func (f *fixtureServer) start() {
	f.once.Do(func() {
		f.stop = make(chan struct{})
		mux := http.NewServeMux()
		for path, h := range f.handlers() {
			mux.HandleFunc(path, h)
		}
		f.s = httptest.NewServer(mux)
	})
}

func (f *fixtureServer) close() {
	if f.s != nil {
		close(f.stop)
		f.s.CloseClientConnections()
		f.s.Close()
	}
}

// page is the address of a fixture.
func fixture(path string) string {
	fixtures.start()
	return fixtures.s.URL + path
}

func html(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprint(w, "<!doctype html><html lang=en><meta charset=utf-8>"+body)
	}
}

func table(rows int) string {
	var s strings.Builder
	s.WriteString("<title>Orders</title><h1>Orders</h1><table><thead><tr><th>No</th><th>Customer</th><th>Total</th><th></th></tr></thead><tbody>")
	for i := 1; i <= rows; i++ {
		fmt.Fprintf(&s, "<tr><td>%d</td><td>Customer %d</td><td>%d.00</td><td><a href=/order/%d>Open</a></td></tr>", i, i, i*7, i)
	}
	return s.String() + "</tbody></table><h2>Footer</h2><p>That is all.</p>"
}

func (f *fixtureServer) handlers() map[string]http.HandlerFunc {
	hang := func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(200)
		w.(http.Flusher).Flush()
		select {
		case <-f.stop:
		case <-r.Context().Done():
		}
	}
	m := map[string]http.HandlerFunc{
		"/{$}":  html(`<title>Home</title><h1>Welcome</h1><p>Hello <b>world</b>.</p><form><label>Email <input type=email name=email required></label><label><input type=checkbox> Remember me</label><select name=c aria-label=Country><option>France<option>Spain</select><button>Send</button></form><a href="/b1">Big table</a>`),
		"/b1":   html(table(5000)),
		"/200":  html(table(200)),
		"/hang": hang,
	}
	return m
}
