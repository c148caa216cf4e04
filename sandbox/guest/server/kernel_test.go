//go:build linux

package server

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"pinfold.dev/pinfold/sandbox"
)

// systemPython is where distributions put the Python that ipykernel is
// packaged for; a kernel is real or the test says loudly that there is none.
var systemPython = cmp.Or(os.Getenv("PINFOLD_TEST_PYTHON"), "/usr/bin/python3")

// testKernels runs kernels as children of the test.
func testKernels(t *testing.T) *kernels {
	t.Helper()
	if out, err := exec.Command(systemPython, "-c", "import ipykernel, pandas, matplotlib").CombinedOutput(); err != nil {
		if os.Getenv("PINFOLD_TEST_KERNEL") != "" {
			t.Fatalf("no ipykernel with pandas and matplotlib: %v: %s", err, out)
		}
		t.Skip("no ipykernel with pandas and matplotlib here; the tests on Podman run it in the full image")
	}
	f, dir := testFiles(t)
	k := &kernels{files: f, temps: []string{"/proc/no/such", t.TempDir()}, out: filepath.Join(dir, "code")}
	k.reset()
	k.launch = func(folder, connection string) (*kernelProc, error) {
		argv := kernelCommand(connection)
		c := exec.Command(systemPython, argv[1:]...)
		c.Dir = dir
		c.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + dir, "LANG=C", "IPYTHONDIR=" + folder + "/ipython", "PYDEVD_DISABLE_FILE_VALIDATION=1"}
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		r, w, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		c.Stdout, c.Stderr = w, w
		if err := c.Start(); err != nil {
			return nil, err
		}
		w.Close()
		done := make(chan struct{})
		go func() {
			_ = c.Wait()
			close(done)
		}()
		return &kernelProc{pid: c.Process.Pid, done: done, stderr: r, how: func() string { return howEnded(c.ProcessState.Sys().(syscall.WaitStatus)) },
			kill: func() {
				_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
				<-done
			}}, nil
	}
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() {
		k.close()
		goleak.VerifyNone(t, before)
		left, err := os.ReadDir(k.temps[1])
		assert.NoError(t, err)
		assert.Empty(t, left, "sockets are left")
	})
	return k
}

func py(t *testing.T, k *kernels, r sandbox.CodeRequest) sandbox.CodeResult {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	res, err := k.run(ctx, r, nil)
	require.NoError(t, err)
	return res
}

func types(res sandbox.CodeResult) []string {
	var out []string
	for _, o := range res.Outputs {
		out = append(out, o.Type)
	}
	return out
}

func TestKernel(t *testing.T) {
	k := testKernels(t)
	began := time.Now()
	res := py(t, k, sandbox.CodeRequest{Code: "x = 20\nprint('Bäcker → ✓ 漢字')\nx + 1"})
	t.Logf("first answer after %v", time.Since(began))
	require.Equal(t, "ok", res.Status)
	assert.Equal(t, []string{"stdout", "result"}, types(res))
	assert.Equal(t, "Bäcker → ✓ 漢字\n", res.Outputs[0].Text, "C57, under LANG=C")
	assert.Equal(t, "21", res.Outputs[1].Text)
	assert.Equal(t, "idle", res.Kernel)
	assert.Equal(t, 1, res.Execution)

	t.Run("state is kept, by context", func(t *testing.T) {
		began := time.Now()
		assert.Equal(t, "40", py(t, k, sandbox.CodeRequest{Code: "x * 2"}).Outputs[0].Text)
		t.Logf("warm: %v", time.Since(began))
		other := py(t, k, sandbox.CodeRequest{Code: "x", Context: "other"})
		assert.Equal(t, "error", other.Status)
		assert.Equal(t, "NameError", other.Outputs[0].Name)
		assert.Len(t, k.list(), 2)
	})
	t.Run("error", func(t *testing.T) {
		res := py(t, k, sandbox.CodeRequest{Code: "def f():\n    return 1/0\nf()"})
		require.Equal(t, "error", res.Status)
		assert.Equal(t, "ZeroDivisionError", res.Outputs[0].Name)
		assert.Contains(t, res.Outputs[0].Text, "return 1/0")
		assert.NotContains(t, res.Outputs[0].Text, "\x1b")
	})
	t.Run("a run at once after a failed one is run", func(t *testing.T) {
		for range 20 {
			require.Equal(t, "error", py(t, k, sandbox.CodeRequest{Code: "1/0"}).Status)
			require.Equal(t, "ok", py(t, k, sandbox.CodeRequest{Code: "1"}).Status)
		}
	})
	t.Run("order of outputs", func(t *testing.T) {
		res := py(t, k, sandbox.CodeRequest{Code: "import sys\nfrom IPython.display import display, Markdown\nprint(1)\nprint(2, file=sys.stderr)\ndisplay(Markdown('**b**'))\nprint(3)\n4"})
		assert.Equal(t, []string{"stdout", "stderr", "display", "stdout", "result"}, types(res))
		assert.Equal(t, "text/markdown", res.Outputs[2].MediaType)
	})
	t.Run("a subprocess prints", func(t *testing.T) {
		res := py(t, k, sandbox.CodeRequest{Code: "import subprocess\n_ = subprocess.run(['echo', 'from below'])"})
		require.Len(t, res.Outputs, 1)
		assert.Contains(t, res.Outputs[0].Text, "from below")
	})
	t.Run("plot", func(t *testing.T) {
		res := py(t, k, sandbox.CodeRequest{Code: "import matplotlib.pyplot as plt\nplt.figure(figsize=(30, 20))\nplt.plot([1, 2, 3])\nplt.show()"})
		require.Equal(t, "ok", res.Status, "%+v", res.Outputs)
		var o sandbox.CodeOutput
		for _, x := range res.Outputs {
			if len(x.Data) > 0 {
				o = x
			}
		}
		require.Equal(t, "image/png", o.MediaType)
		c, err := png.DecodeConfig(bytes.NewReader(o.Data))
		require.NoError(t, err)
		assert.LessOrEqual(t, max(c.Width, c.Height), 1568)
		assert.FileExists(t, o.Path, "the whole picture")
	})
	t.Run("table", func(t *testing.T) {
		res := py(t, k, sandbox.CodeRequest{Code: "import pandas as pd\ndf = pd.DataFrame({'a': range(1000), 'b': 'x'})\ndf"})
		require.Len(t, res.Outputs, 1)
		o := res.Outputs[0]
		assert.Contains(t, o.Text, "[1000 rows x 2 columns]")
		assert.Equal(t, 1000, o.Rows)
		assert.Equal(t, "text/csv", o.MediaType)
		assert.Equal(t, 1001, strings.Count(get(t, o.Path), "\n"))
	})
	t.Run("html and svg go to files", func(t *testing.T) {
		res := py(t, k, sandbox.CodeRequest{Code: "from IPython.display import HTML, SVG\ndisplay(HTML('<b>x</b>'))\ndisplay(SVG('<svg xmlns=\"http://www.w3.org/2000/svg\"/>'))"})
		require.Len(t, res.Outputs, 2, "%+v", res)
		assert.Equal(t, "<b>x</b>", get(t, res.Outputs[0].Path))
		assert.Contains(t, get(t, res.Outputs[1].Path), "<svg")
	})
	t.Run("much output is bounded", func(t *testing.T) {
		res := py(t, k, sandbox.CodeRequest{Code: "for i in range(200000): print('line', i)", MaxOutput: 10_000})
		require.Equal(t, "ok", res.Status)
		n := 0
		for _, o := range res.Outputs {
			n += len(o.Text)
		}
		assert.Less(t, n, 11_000)
		assert.True(t, res.Truncated)
		assert.Contains(t, res.Outputs[0].Text, "line 0\n")
		assert.Contains(t, res.Outputs[0].Text, "line 199999\n")
	})
	t.Run("one print of 40 MB", func(t *testing.T) {
		res := py(t, k, sandbox.CodeRequest{Code: "print('y' * 40_000_000)\nprint('after')"})
		require.Equal(t, "ok", res.Status)
		assert.True(t, res.Truncated)
		assert.Contains(t, res.Outputs[len(res.Outputs)-1].Text, "after")
	})
	t.Run("an error of 20 MB ends the run", func(t *testing.T) {
		res := py(t, k, sandbox.CodeRequest{Code: "raise Exception('x' * 20_000_000)", WaitMS: 20_000})
		assert.Equal(t, "error", res.Status, "its reply is too large to be taken, but it is one")
		assert.Equal(t, []string{"error"}, types(res))
		assert.Equal(t, "1\n", py(t, k, sandbox.CodeRequest{Code: "print(1)", WaitMS: 20_000}).Outputs[0].Text)
	})
	t.Run("progress bars take one line", func(t *testing.T) {
		res := py(t, k, sandbox.CodeRequest{Code: "import time\nfor i in range(1000): print(f'\\r{i}%', end='')\nprint('\\r100%')"})
		assert.Equal(t, "100%\n", res.Outputs[0].Text)
	})
	t.Run("no input", func(t *testing.T) {
		res := py(t, k, sandbox.CodeRequest{Code: "input('name? ')"})
		assert.Equal(t, "error", res.Status)
		assert.Equal(t, "StdinNotImplementedError", res.Outputs[len(res.Outputs)-1].Name)
	})
	t.Run("soft wait, then on by handle", func(t *testing.T) {
		res := py(t, k, sandbox.CodeRequest{Code: "import time\nprint('begun', flush=True)\ntime.sleep(1)\nprint('done')", WaitMS: 500})
		require.Equal(t, "running", res.Status)
		assert.Equal(t, "busy", res.Kernel)
		_, err := k.run(context.Background(), sandbox.CodeRequest{Code: "1", WaitMS: 50}, nil)
		assert.Equal(t, sandbox.FailedPrecondition, code(t, err))
		first := res.Outputs
		res = py(t, k, sandbox.CodeRequest{Run: res.Run})
		assert.Equal(t, "ok", res.Status)
		all := ""
		for _, o := range append(first, res.Outputs...) {
			all += o.Text
		}
		assert.Equal(t, "begun\ndone\n", all)
	})
	t.Run("timeout interrupts and keeps the state", func(t *testing.T) {
		res := py(t, k, sandbox.CodeRequest{Code: "kept = 7\nimport time\ntime.sleep(60)", TimeoutMS: 300})
		assert.Equal(t, "timed_out", res.Status)
		assert.Equal(t, "7", py(t, k, sandbox.CodeRequest{Code: "kept"}).Outputs[0].Text)
	})
	t.Run("a limit that strikes before the code runs keeps the state", func(t *testing.T) {
		for range 5 {
			res := py(t, k, sandbox.CodeRequest{Code: "import time\ntime.sleep(60)", TimeoutMS: 1})
			assert.Equal(t, "timed_out", res.Status)
			assert.NotEqual(t, "dead", res.Kernel)
		}
		assert.Equal(t, "7", py(t, k, sandbox.CodeRequest{Code: "kept"}).Outputs[0].Text)
	})
	t.Run("timeout ends a kernel that does not react", func(t *testing.T) {
		stubborn := "import time\nwhile True:\n    try:\n        time.sleep(60)\n    except KeyboardInterrupt:\n        pass"
		res := py(t, k, sandbox.CodeRequest{Code: stubborn, TimeoutMS: 200})
		assert.Equal(t, "timed_out", res.Status)
		assert.Equal(t, "dead", res.Kernel)
		res = py(t, k, sandbox.CodeRequest{Code: "'kept' in globals()"})
		assert.Equal(t, "False", res.Outputs[0].Text)
	})
	t.Run("cancel interrupts", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		defer cancel()
		_, err := k.run(ctx, sandbox.CodeRequest{Code: "import time\nz = 1\ntime.sleep(60)"}, nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, "1", py(t, k, sandbox.CodeRequest{Code: "z"}).Outputs[0].Text)
	})
	t.Run("death", func(t *testing.T) {
		res := py(t, k, sandbox.CodeRequest{Code: "print('last', flush=True)\nimport os, time\ntime.sleep(.2)\nos.kill(os.getpid(), 9)"})
		assert.Equal(t, "kernel_died", res.Status)
		assert.Equal(t, "dead", res.Kernel)
		assert.Contains(t, strings.Join(res.Notes, " "), "SIGKILL")
		assert.Equal(t, "last\n", res.Outputs[0].Text)
		assert.Equal(t, "2", py(t, k, sandbox.CodeRequest{Code: "1+1"}).Outputs[0].Text)
	})
	t.Run("death between two runs is told", func(t *testing.T) {
		py(t, k, sandbox.CodeRequest{Code: "import threading, os\nthreading.Timer(.3, lambda: os._exit(3)).start()"})
		require.Eventually(t, func() bool {
			for _, i := range k.list() {
				if i.Context == "default" {
					return false
				}
			}
			return true
		}, 10*time.Second, 20*time.Millisecond)
		res := py(t, k, sandbox.CodeRequest{Code: "1"})
		assert.Equal(t, "restarted", res.Kernel)
		assert.Contains(t, strings.Join(res.Notes, " "), "it exited with code 3")
		assert.Empty(t, py(t, k, sandbox.CodeRequest{Code: "1"}).Notes)
	})
	t.Run("parallel calls in one context take turns", func(t *testing.T) {
		var wg sync.WaitGroup
		py(t, k, sandbox.CodeRequest{Code: "n = 0"})
		for range 8 {
			wg.Go(func() {
				res, err := k.run(context.Background(), sandbox.CodeRequest{Code: "m = n\nimport time\ntime.sleep(.02)\nn = m + 1"}, nil)
				assert.NoError(t, err)
				assert.Equal(t, "ok", res.Status)
			})
		}
		wg.Wait()
		assert.Equal(t, "8", py(t, k, sandbox.CodeRequest{Code: "n"}).Outputs[0].Text)
	})
	t.Run("kernels are counted", func(t *testing.T) {
		for i := range maxKernels + 1 {
			_, err := k.run(context.Background(), sandbox.CodeRequest{Code: "1", Context: fmt.Sprint("c", i)}, nil)
			if err != nil {
				assert.Equal(t, sandbox.ResourceExhausted, code(t, err))
				return
			}
		}
		t.Error("there is no bound")
	})
	t.Run("reset", func(t *testing.T) {
		py(t, k, sandbox.CodeRequest{Code: "gone = 1"})
		res := py(t, k, sandbox.CodeRequest{Code: "'gone' in globals()", Reset: true})
		assert.Equal(t, "False", res.Outputs[0].Text)
		assert.Equal(t, "restarted", res.Kernel)
	})
}

func TestKernelMissing(t *testing.T) {
	k := testKernels(t)
	// A Python without the module says so on its way out.
	k.launch = func(folder, connection string) (*kernelProc, error) {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		done := make(chan struct{})
		fmt.Fprintln(w, "/usr/bin/python3: No module named ipykernel_launcher")
		w.Close()
		close(done)
		return &kernelProc{done: done, stderr: r, how: func() string { return "it exited with code 1" }, kill: func() {}}, nil
	}
	_, err := k.run(context.Background(), sandbox.CodeRequest{Code: "1"}, nil)
	require.Equal(t, sandbox.FailedPrecondition, code(t, err))
	assert.Contains(t, err.Error(), "ipykernel")
}

func TestTheSessionEndsWhileAKernelStarts(t *testing.T) {
	k := testKernels(t)
	started := make(chan struct{})
	launch := k.launch
	k.launch = func(folder, connection string) (*kernelProc, error) {
		p, err := launch(folder, connection)
		close(started)
		return p, err
	}
	failed := make(chan error)
	go func() {
		_, err := k.run(context.Background(), sandbox.CodeRequest{Code: "1"}, nil)
		failed <- err
	}()
	<-started
	began := time.Now()
	k.close()
	assert.Less(t, time.Since(began), 2*time.Second)
	require.Error(t, <-failed)
}
