package podman

import (
	"log/slog"
	"time"
)

// stopwatch notes how long the steps of a start took, for the debug log.
type stopwatch struct {
	last  time.Time
	steps []slog.Attr
}

// mark ends the step that went on until now.
func (s *stopwatch) mark(step string) {
	now := time.Now()
	if !s.last.IsZero() {
		s.steps = append(s.steps, slog.Float64(step+"_ms", float64(now.Sub(s.last).Microseconds())/1000))
	}
	s.last = now
}

func (s *stopwatch) attrs() []any {
	out := make([]any, len(s.steps))
	for i, a := range s.steps {
		out[i] = a
	}
	return out
}
