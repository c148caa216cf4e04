package templates

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Size is a number of bytes, written with a binary unit: "512MiB", "2GiB".
type Size int64

var units = []struct {
	name  string
	bytes int64
}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}

// UnmarshalText takes whole numbers with a binary unit and nothing else: "2G"
// and "2GB" mean different things to different people.
func (s *Size) UnmarshalText(text []byte) error {
	for _, u := range units {
		digits, ok := strings.CutSuffix(string(text), u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(digits, 10, 63)
		if err != nil || n == 0 || digits[0] == '+' {
			break
		}
		if n > uint64(math.MaxInt64/u.bytes) {
			return fmt.Errorf("%q is more bytes than there can be", text)
		}
		*s = Size(int64(n) * u.bytes)
		return nil
	}
	return fmt.Errorf("%q is no size; write a whole number with KiB, MiB, GiB or TiB, such as 512MiB", text)
}

// String writes the size in the largest unit that divides it.
func (s Size) String() string {
	for _, u := range units {
		if s != 0 && int64(s)%u.bytes == 0 {
			return strconv.FormatInt(int64(s)/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10) + "B"
}
