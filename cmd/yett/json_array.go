package main

import (
	"bytes"
	"io"
)

// jsonArray prints one line of JSON, an array, item by item: however long it
// becomes, no more than one item is held.
type jsonArray struct {
	out   io.Writer
	begun bool
}

func (j *jsonArray) add(v any) error {
	var b bytes.Buffer
	b.WriteByte('[')
	if j.begun {
		b.Reset()
		b.WriteByte(',')
	}
	j.begun = true
	if err := printJSON(&b, v); err != nil {
		return err
	}
	_, err := j.out.Write(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
	return err
}

// end closes the array. One that an error broke off is never closed, so that
// nobody takes it for a whole one.
func (j *jsonArray) end() error {
	last := "]\n"
	if !j.begun {
		last = "[]\n"
	}
	_, err := io.WriteString(j.out, last)
	return err
}
