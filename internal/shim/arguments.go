package shim

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/yett-broker/yett/client"
	"github.com/yett-broker/yett/internal/wire"
)

// defaultWaitMS leaves a margin under the 60 s after which hosts give up.
const defaultWaitMS = 45_000

// badArguments is what is wrong with the arguments of a call.
type badArguments struct{ message string }

func (e *badArguments) Error() string { return e.message }

// decode reads the arguments of a tool into the struct that dst points to, by
// the rules of the broker's socket: names match exactly, what is not tagged
// optional is required, and nothing else may be there. A null stands for an
// absent optional argument, as some hosts write it.
func decode(raw json.RawMessage, dst any) *badArguments {
	if len(raw) == 0 || bytes.Equal(raw, []byte("null")) {
		raw = json.RawMessage("{}")
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil {
		return &badArguments{"arguments must be an object"}
	}
	known := argumentNames(dst)
	nulls := false
	for name, value := range members {
		if !slices.Contains(known, name) {
			return &badArguments{"there is no argument " + quoteShort(name) + "; " + listOf(known)}
		}
		if bytes.Equal(value, []byte("null")) {
			delete(members, name)
			nulls = true
		}
	}
	if nulls {
		var err error
		if raw, err = json.Marshal(members); err != nil {
			return &badArguments{"arguments cannot be read"}
		}
	}
	if err := wire.DecodeParams(raw, dst); err != nil {
		return &badArguments{err.Message}
	}
	return nil
}

func listOf(known []string) string {
	if len(known) == 0 {
		return "this tool takes none"
	}
	return "known are " + strings.Join(known, ", ")
}

func argumentNames(dst any) []string {
	t := reflect.TypeOf(dst).Elem()
	var names []string
	for i := range t.NumField() {
		names = append(names, t.Field(i).Tag.Get("json"))
	}
	return names
}

// waitOf judges wait_ms.
func waitOf(ms *int64) (int64, *badArguments) {
	switch {
	case ms == nil:
		return defaultWaitMS, nil
	case *ms < 0 || *ms > client.MaxWaitMS:
		return 0, &badArguments{"wait_ms must be from 0 to " + strconv.Itoa(client.MaxWaitMS)}
	}
	return *ms, nil
}

// quoteShort quotes a name that an agent chose.
func quoteShort(s string) string {
	const most = 60
	if len(s) > most {
		s = s[:most] + "…"
	}
	return strconv.QuoteToASCII(s)
}
