package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/chromedp/cdproto/page"
)

// dialogAnswer says what to do with a confirm or prompt of the running call.
type dialogAnswer struct {
	do   string // "" (hold), accept, dismiss
	text *string
}

// dialog is one that is open and waits for an answer.
type dialog struct {
	kind, message, preset string
}

// parseAnswer reads on_dialog: "hold", "accept", "dismiss" or {"text": "…"}.
func parseAnswer(raw json.RawMessage) (dialogAnswer, error) {
	if len(raw) == 0 {
		return dialogAnswer{}, nil
	}
	bad := fail("bad_value", `Give "hold", "accept", "dismiss" or {"text": "…"}.`, "on_dialog: not understood").with("field", "on_dialog")
	var word string
	if json.Unmarshal(raw, &word) == nil {
		switch word {
		case "hold":
			return dialogAnswer{}, nil
		case "accept", "dismiss":
			return dialogAnswer{do: word}, nil
		}
		return dialogAnswer{}, bad
	}
	var object map[string]string
	if json.Unmarshal(raw, &object) != nil || len(object) != 1 {
		return dialogAnswer{}, bad
	}
	text, ok := object["text"]
	if !ok {
		return dialogAnswer{}, bad
	}
	return dialogAnswer{do: "accept", text: &text}, nil
}

// dialogOpening runs on the reader goroutine. alert and beforeunload are
// answered; confirm and prompt are held unless the running call says otherwise.
func (t *Tab) dialogOpening(ev *page.EventJavascriptDialogOpening) {
	d := &dialog{kind: string(ev.Type), message: cut(cleanText(ev.Message), 300), preset: cut(cleanText(ev.DefaultPrompt), 100)}
	t.mu.Lock()
	answer := t.answer
	hold := false
	switch d.kind {
	case "alert", "beforeunload":
		answer = dialogAnswer{do: "accept"}
	default:
		hold = answer.do == ""
	}
	if hold {
		t.dialog = d
		t.stopCall(t.dialogError())
	}
	t.notify()
	t.mu.Unlock()
	if hold {
		t.b.log.add(Event{Kind: "dialog", Tab: t.id, Text: fmt.Sprintf("%s is open and waits: %s", d.kind, quote(d.message))})
		return
	}
	t.b.spawn(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := t.usable(ctx); err == nil {
			_ = t.say(ctx, d, answer)
		}
	})
}

// say answers a dialog.
func (t *Tab) say(ctx context.Context, d *dialog, a dialogAnswer) error {
	params := map[string]any{"accept": a.do == "accept"}
	said := map[string]string{"accept": "accepted", "dismiss": "dismissed"}[a.do]
	if a.text != nil && d.kind == "prompt" {
		params["promptText"] = *a.text
		said = "answered"
	}
	err := t.sess.Call(ctx, "Page.handleJavaScriptDialog", params, nil)
	if err != nil {
		return err
	}
	t.b.log.add(Event{Kind: "dialog", Tab: t.id, Text: fmt.Sprintf("%s %s: %s", d.kind, said, quote(d.message))})
	return nil
}

// dialogError is the error of every call while a dialog is held; mu is held.
func (t *Tab) dialogError() *Error {
	d := t.dialog
	return fail("dialog_open", `Answer it: browser_act with steps [] and on_dialog "accept", "dismiss" or {"text": "…"}.`,
		"tab %s shows a %s: %s", t.id, d.kind, quote(d.message)).with("dialog", map[string]any{"kind": d.kind, "message": d.message, "default": d.preset})
}

// answerHeld answers a dialog that an earlier call left open.
func (t *Tab) answerHeld(ctx context.Context, a dialogAnswer) error {
	t.mu.Lock()
	d := t.dialog
	if d == nil {
		t.mu.Unlock()
		return nil
	}
	if a.do == "" {
		err := t.dialogError()
		t.mu.Unlock()
		return err
	}
	t.mu.Unlock()
	if err := t.say(ctx, d, a); err != nil {
		return word(err, "answering the dialog")
	}
	if err := t.until(ctx, func() bool { return t.dialog != d }); err != nil {
		return word(err, "answering the dialog")
	}
	t.mu.Lock()
	after := t.after
	t.after = nil
	t.mu.Unlock()
	for _, f := range after {
		f(ctx)
	}
	return nil
}
