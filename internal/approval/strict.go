package approval

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// sameForAll refuses a text of which another reader could make something else
// than v: with a member that v does not have under exactly this name, with one
// that stands twice, or with a value in another form.
func sameForAll(text []byte, v any) error {
	said, err := canonical(json.RawMessage(text))
	if err != nil {
		return err
	}
	taken, err := canonical(v)
	if err != nil {
		return err
	}
	if !bytes.Equal(said, taken) {
		return errors.New("it has members that are not a receipt's, or in another form")
	}
	return eachOnce(json.NewDecoder(bytes.NewReader(text)))
}

// eachOnce reads one JSON value, in which no object has two members of a name.
// That it is well formed was seen before.
func eachOnce(dec *json.Decoder) error {
	token, err := dec.Token()
	open, nested := token.(json.Delim)
	if err != nil || !nested {
		return err
	}
	names := map[string]bool{}
	for dec.More() {
		if open == '{' {
			name, err := dec.Token()
			if err != nil {
				return err
			}
			if names[name.(string)] {
				return fmt.Errorf("the member %s stands in it twice", Escape(name.(string), 100))
			}
			names[name.(string)] = true
		}
		if err := eachOnce(dec); err != nil {
			return err
		}
	}
	_, err = dec.Token()
	return err
}
