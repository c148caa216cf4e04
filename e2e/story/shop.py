import csv, html, io
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

orders = []

PAGE = """<!doctype html><title>Orders</title>
<style>body {{ font: 16px sans-serif; margin: 2em }} td, th {{ padding: .3em 1em; text-align: left }}</style>
<h1>Orders</h1>
<form method="post">
  <label>Item <input name="item"></label>
  <label>Amount <input name="amount" type="number"></label>
  <button>Add</button>
</form>
<table><tr><th>item</th><th>amount</th></tr>{rows}</table>
<p><a href="/orders.csv">Download CSV</a></p>"""


class Shop(BaseHTTPRequestHandler):
    def answer(self, code, body, **headers):
        body = body.encode()
        self.send_response(code)
        for name, value in {"content-length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.path == "/orders.csv":
            out = io.StringIO()
            csv.writer(out).writerows([("item", "amount"), *orders])
            self.answer(200, out.getvalue(), content_type="text/csv", content_disposition="attachment; filename=orders.csv")
        elif self.path == "/":
            rows = "".join(f"<tr><td>{html.escape(i)}</td><td>{html.escape(a)}</td></tr>" for i, a in orders)
            self.answer(200, PAGE.format(rows=rows), content_type="text/html; charset=utf-8")
        else:
            self.answer(404, "not found")

    def do_POST(self):
        form = parse_qs(self.rfile.read(int(self.headers["content-length"])).decode())
        orders.append((form["item"][0], form["amount"][0]))
        self.answer(303, "", location="/")


ThreadingHTTPServer(("127.0.0.1", 8000), Shop).serve_forever()
