package browser

import (
	"context"
	"strings"
	"time"
)

// Scripts of ours run in an isolated world: the page sees neither them nor
// what they change in the language's own objects. They are used to act and to
// run selectors, not to look.

const worldName = "pinfold"

const objectGroup = "pinfold"

type remoteObject struct {
	ObjectID string `json:"objectId"`
	Value    any    `json:"value"`
	Type     string `json:"type"`
	Subtype  string `json:"subtype"`
}

type exception struct {
	Text      string `json:"text"`
	Exception struct {
		Description string `json:"description"`
	} `json:"exception"`
}

func (e *exception) Error() string {
	if e.Exception.Description != "" {
		first, _, _ := strings.Cut(e.Exception.Description, "\n")
		return first
	}
	return e.Text
}

// world makes an isolated world in a frame.
func (o *op) world(frameID string) (int, error) {
	var res struct {
		ID int `json:"executionContextId"`
	}
	err := o.call("Page.createIsolatedWorld", map[string]any{"frameId": frameID, "worldName": worldName}, &res)
	return res.ID, err
}

// object returns a handle of a node in our world of its frame.
func (o *op) object(backend int64, frameID string) (string, error) {
	params := map[string]any{"backendNodeId": backend, "objectGroup": objectGroup}
	if frameID != "" {
		id, err := o.world(frameID)
		if err != nil {
			return "", err
		}
		params["executionContextId"] = id
	}
	var res struct {
		Object remoteObject `json:"object"`
	}
	if err := o.call("DOM.resolveNode", params, &res); err != nil {
		return "", err
	}
	return res.Object.ObjectID, nil
}

// callOn runs a function with the node as this and decodes what it returns.
func (o *op) callOn(backend int64, function string, args []any, out any) error {
	return o.callIn(backend, "", function, args, out)
}

func (o *op) callIn(backend int64, frameID, function string, args []any, out any) error {
	object, err := o.object(backend, frameID)
	if err != nil {
		return err
	}
	list := make([]map[string]any, 0, len(args))
	for _, a := range args {
		list = append(list, map[string]any{"value": a})
	}
	var res struct {
		Result struct {
			Value any `json:"value"`
		} `json:"result"`
		Exception *exception `json:"exceptionDetails"`
	}
	err = o.call("Runtime.callFunctionOn", map[string]any{"objectId": object, "functionDeclaration": function, "arguments": list,
		"returnByValue": true, "awaitPromise": true, "userGesture": true}, &res)
	if err != nil {
		return err
	}
	if res.Exception != nil {
		return fail("bad_value", "Take a browser_snapshot and choose another target.", "the page refused: %s", cut(cleanText(res.Exception.Error()), 200))
	}
	return assign(out, res.Result.Value)
}

// assign puts a decoded JSON value where the caller wants it.
func assign(out, v any) error {
	switch p := out.(type) {
	case nil:
	case *bool:
		*p, _ = v.(bool)
	case *string:
		*p, _ = v.(string)
	case *float64:
		*p, _ = v.(float64)
	case *map[string]any:
		*p, _ = v.(map[string]any)
	case *[]any:
		*p, _ = v.([]any)
	}
	return nil
}

// evalNodes runs an expression that gives an array of elements in our world of
// a frame and returns their backend ids.
func (o *op) evalNodes(f *frame, expression string) ([]int64, error) {
	world, err := o.world(f.ID)
	if err != nil {
		return nil, err
	}
	var res struct {
		Result    remoteObject `json:"result"`
		Exception *exception   `json:"exceptionDetails"`
	}
	if err := o.call("Runtime.evaluate", map[string]any{"expression": expression, "contextId": world, "objectGroup": objectGroup}, &res); err != nil {
		return nil, err
	}
	if res.Exception != nil {
		return nil, fail("bad_value", "Correct the selector.", "on: %s", cut(cleanText(res.Exception.Error()), 200)).with("field", "on")
	}
	return o.backends(res.Result.ObjectID)
}

// letGo releases the page's objects that a call held.
func (o *op) letGo() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(o.base), 50*time.Millisecond)
	defer cancel()
	_ = o.t.sess.Call(ctx, "Runtime.releaseObjectGroup", map[string]any{"objectGroup": objectGroup}, nil)
}

// nodesFrom runs a function on a node that returns an array of elements.
func (o *op) nodesFrom(backend int64, frameID, function string) ([]int64, error) {
	object, err := o.object(backend, frameID)
	if err != nil {
		return nil, err
	}
	var res struct {
		Result    remoteObject `json:"result"`
		Exception *exception   `json:"exceptionDetails"`
	}
	if err := o.call("Runtime.callFunctionOn", map[string]any{"objectId": object, "functionDeclaration": function, "objectGroup": objectGroup}, &res); err != nil {
		return nil, err
	}
	if res.Exception != nil || res.Result.ObjectID == "" {
		return nil, nil
	}
	return o.backends(res.Result.ObjectID)
}

// backends are the node ids of an array of elements in the page.
func (o *op) backends(array string) ([]int64, error) {
	var props struct {
		Result []struct {
			Name  string       `json:"name"`
			Value remoteObject `json:"value"`
		} `json:"result"`
	}
	if err := o.call("Runtime.getProperties", map[string]any{"objectId": array, "ownProperties": true}, &props); err != nil {
		return nil, err
	}
	var out []int64
	for _, p := range props.Result {
		if p.Value.Subtype != "node" || len(out) >= 50 {
			continue
		}
		var d struct {
			Node struct {
				Backend int64 `json:"backendNodeId"`
			} `json:"node"`
		}
		if err := o.call("DOM.describeNode", map[string]any{"objectId": p.Value.ObjectID}, &d); err != nil {
			return nil, err
		}
		out = append(out, d.Node.Backend)
	}
	return out, nil
}
