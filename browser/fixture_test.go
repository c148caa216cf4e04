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
	for path, body := range map[string]string{
		"/form": `<title>Form</title><form action=/done><label>Email <input type=email name=email required></label>
			<label><input type=checkbox name=remember> Remember me</label><label>Born <input type=date name=born></label>
			<select name=c aria-label=Country><option value=FR>France<option value=ES>Spain</select><button>Send</button></form>`,
		"/done": `<title>Done</title><h1>Thank you</h1>`,
		"/b7":   `<title>Counter</title><h1>Counter</h1><p>Some words that stay.</p><button onclick="this.textContent='Count: '+(++n)">Count: 0</button><p>More words that stay as they are on this page.</p><script>n=0</script>`,
		"/b25":  `<title>Remove</title><button id=v>Victim</button><button onclick="v.remove()">Remove</button><input aria-label=Notes>`,
		"/b26":  `<title>Rewrite</title><div id=d><button>Save</button></div><button onclick="d.innerHTML='<button>Save</button>'">Rewrite</button>`,
		"/b27": `<title>Virtual</title><div id=list></div><button onclick="fill(50)">Next</button><script>
			for(let i=0;i<5;i++){const d=document.createElement('div');d.style.cursor='pointer';d.onclick=()=>{};list.append(d)}
			function fill(o){[...list.children].forEach((d,i)=>d.textContent='Row '+(o+i+1))} fill(0)</script>`,
		"/b30": `<title>Shop</title><button style="position:absolute;top:100px;left:50px" onclick="out.textContent='bought'">Buy</button><p id=out></p>
			<div id=banner style="position:fixed;inset:0;background:#eee"><p>We use cookies</p><button onclick="banner.remove()">Accept cookies</button></div>`,
		"/b31": `<title>Pulse</title><style>@keyframes p{from{transform:rotate(0)}to{transform:rotate(360deg)}}button{animation:p 2s infinite linear;width:120px;height:120px;margin:100px}</style>
			<button onclick="out.textContent='pulsed'">Pulse</button><p id=out></p>`,
		"/b33": `<title>Drag</title><canvas id=c width=300 height=200 tabindex=0 style="border:1px solid"></canvas><p id=out></p>
			<div id=src draggable=true style="width:80px;height:40px;background:#cde">card</div><div id=dst style="width:200px;height:80px;background:#eee">here</div>
			<script>c.onmousemove=e=>{if(e.buttons===1)out.textContent='drawn with button'};src.ondragstart=e=>e.dataTransfer.setData('text/plain','card');
			dst.ondragover=e=>e.preventDefault();dst.ondrop=e=>{e.preventDefault();dst.textContent='dropped '+e.dataTransfer.getData('text/plain')}</script>`,
		"/b35": `<title>Combo</title><div role=combobox tabindex=0 aria-expanded=false aria-label=Color style="border:1px solid;width:100px" onclick="lb.hidden=false">pick</div>
			<div role=listbox id=lb hidden><div role=option onclick="out.textContent='chose '+this.textContent;lb.hidden=true">Red</div><div role=option onclick="out.textContent='chose '+this.textContent;lb.hidden=true">Green</div></div><p id=out></p>`,
		"/b37": `<title>Editor</title><div id=e contenteditable role=textbox aria-label=Body style="border:1px solid;min-height:40px"><p>old</p></div><p>state: <span id=s></span></p>
			<script>e.addEventListener('beforeinput',()=>{});e.addEventListener('input',()=>s.textContent=e.innerText)</script>`,
		"/b38":       `<title>Keys</title><input aria-label=Search onkeydown="out.textContent+=' '+event.key"><p>keys:<span id=out></span></p>`,
		"/b41":       `<title>Deep</title><p id=out></p><div style="height:2500px"></div><button onclick="out.textContent='hit deep'">Deep button</button><div style="height:2000px"></div>`,
		"/b42":       `<title>Frame</title><div style="height:900px">tall</div><iframe style="border:15px solid red;padding:20px;width:400px;height:200px" src=/b42/inner></iframe>`,
		"/b42/inner": `<div style="height:600px">inner tall</div><button onclick="this.nextElementSibling.textContent='inner hit'">Inner</button><p></p>`,
		"/b43": `<title>Fancy</title><style>.t{position:relative;display:block}.t input{opacity:0;position:absolute}.t span{padding:4px;border:1px solid}.g input{position:absolute;opacity:0;width:0;height:0}</style>
			<label class=t><input type=checkbox><span>Fancy</span></label><label class=g><input type=checkbox><span>Gone</span></label>`,
		"/b59": `<title>Dialogs</title><p id=out></p><button onclick="out.textContent='confirmed '+confirm('Are you sure?')">Confirm</button>
			<button onclick="out.textContent='prompted '+prompt('Name?')">Prompt</button><button onclick="alert('Attention');out.textContent='alerted'">Alert</button>
			<button onmousedown="out.textContent='down '+confirm('Now?')">Down</button>`,
		"/b63":       `<title>Unsaved</title><input aria-label=Text><script>onbeforeunload=e=>{e.preventDefault();return 'x'}</script>`,
		"/b66":       `<title>Login</title><button onclick="open('/b66/popup','p','width=400,height=300')">Sign in</button><p id=out>signed out</p><script>onmessage=e=>out.textContent='signed in: '+e.data</script>`,
		"/b66/popup": `<title>Provider</title><button onclick="opener.postMessage('token','*');window.close()">Allow</button>`,
		"/b70":       `<title>Files</title><a href=/b70/file>Report</a>`,
		"/b74": `<title>Upload</title><input type=file id=f hidden onchange="out.textContent='got '+f.files[0].name+' '+f.files[0].size"><button onclick="f.click()">Choose</button>
			<label>Direct <input type=file onchange="out.textContent='direct '+this.files[0].name+' '+this.files[0].size"></label><div id=plain onclick="">plain</div><p id=out></p>`,
		"/b29":  `<title>Dead</title><a href=/done onclick="event.preventDefault()">Dead link</a>`,
		"/late": `<title>Late</title><button onclick="setTimeout(()=>out.textContent='arrived late',700)">Go</button><button disabled>Off</button><a href=#a>Twin</a><a href=#b>Twin</a><p id=out></p><div style="height:3000px"></div>`,
		"/b58":  `<title>Loop</title><button onclick="while(1){}">Loop</button>`,
	} {
		m[path] = html(body)
	}
	m["/b70/file"] = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Disposition", `attachment; filename="report.csv"`)
		w.Header().Set("Content-Type", "text/csv")
		fmt.Fprint(w, "a,b\n1,2\n")
	}
	m["/b73"] = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Disposition", `attachment; filename="../../`+strings.Repeat("x", 300)+"\t.txt\"")
		fmt.Fprint(w, "x")
	}
	m["/b71.pdf"] = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/pdf")
		_, _ = w.Write([]byte("%PDF-1.4\n%%EOF\n"))
	}
	return m
}
