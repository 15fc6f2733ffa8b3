package approval

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"time"
)

// Caps of one string in runes, of an array and an object in items, and of the
// document in bytes. What is longer is cut with a visible mark.
const (
	capText     = 512
	capName     = 64
	capItems    = 128
	capDocument = 256 << 10

	uncut = math.MaxInt // of an action: what a person says yes to is not cut
)

// write is the one place where a card becomes bytes. Every string in it is
// escaped and capped before it is encoded, but those of the action, which are
// escaped only: an action that is too long is ErrTooLong. Where what the caller
// says of itself still makes the document too long for one frame, its caps are
// halved until it fits; the caps of verified and granting stay.
func write(c Card) ([]byte, error) {
	if c.Request.tooLong() {
		return nil, fmt.Errorf("writing a card: %w", ErrTooLong)
	}
	for text := capText; ; text /= 2 {
		doc, err := writeCapped(c, text)
		if err != nil {
			return nil, fmt.Errorf("writing a card: %w", err)
		}
		if len(doc) <= capDocument || text == 1 {
			return doc, nil
		}
	}
}

func writeCapped(c Card, text int) ([]byte, error) {
	claimed, action := c.Claimed, c.Request
	c.Claimed, c.Request = Claimed{}, nil
	c = escaped(reflect.ValueOf(c), capText).Interface().(Card)
	c.Claimed = escaped(reflect.ValueOf(claimed), text).Interface().(Claimed)
	c.Request = escaped(reflect.ValueOf(action), uncut).Interface().(*Request)
	return canonical(c)
}

// escaped returns a deep copy of v with every string escaped. It runs before
// anything is encoded, since JSON would make all invalid UTF-8 look the same.
func escaped(v reflect.Value, limit int) reflect.Value {
	if t, ok := v.Interface().(time.Time); ok {
		return reflect.ValueOf(t.UTC())
	}
	out := reflect.New(v.Type()).Elem()
	switch v.Kind() {
	case reflect.String:
		out.SetString(Escape(v.String(), limit))
	case reflect.Pointer:
		if !v.IsNil() {
			out.Set(reflect.New(v.Type().Elem()))
			out.Elem().Set(escaped(v.Elem(), limit))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			out.Field(i).Set(escaped(v.Field(i), limit))
		}
	case reflect.Slice:
		if !v.IsNil() {
			out.Set(escapedItems(v, limit))
		}
	case reflect.Map:
		if !v.IsNil() {
			out.Set(reflect.ValueOf(escapedMembers(v.Interface().(map[string]string), limit)))
		}
	default: // numbers and truth values
		out.Set(v)
	}
	return out
}

// escapedItems marks what it leaves out with an item of its own: the mark is
// the text, or the first field, of that item.
func escapedItems(v reflect.Value, limit int) reflect.Value {
	n := v.Len()
	if limit != uncut {
		n = min(n, capItems)
	}
	out := reflect.MakeSlice(v.Type(), n, n+1)
	for i := range n {
		out.Index(i).Set(escaped(v.Index(i), limit))
	}
	if more := v.Len() - n; more > 0 {
		mark := reflect.New(v.Type().Elem()).Elem()
		text := mark
		if mark.Kind() == reflect.Struct {
			text = mark.Field(0)
		}
		text.SetString(LeftOut(more))
		out = reflect.Append(out, mark)
	}
	return out
}

// escapedMembers takes members in the order of their names. A name that is cut
// to an earlier one counts as left out: it must not replace that one.
func escapedMembers(m map[string]string, limit int) map[string]string {
	out := make(map[string]string, len(m))
	for _, name := range slices.Sorted(maps.Keys(m)) {
		short := Escape(name, capName)
		if _, taken := out[short]; !taken && len(out) < capItems {
			out[short] = Escape(m[name], limit)
		}
	}
	if more := len(m) - len(out); more > 0 {
		out[LeftOut(more)] = ""
	}
	return out
}
