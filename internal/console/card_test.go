package console

import (
	"bytes"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/approval"
)

// fill gives every string of a value a text of its own and notes where, every
// number and truth something that is not empty.
func fill(v reflect.Value, path string, texts map[string]string) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), path, texts)
	case reflect.Struct:
		if _, ok := v.Interface().(time.Time); ok {
			return
		}
		for i := range v.NumField() {
			fill(v.Field(i), path+"."+v.Type().Field(i).Name, texts)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), path, texts)
	case reflect.String:
		text := fmt.Sprintf("text%d.", len(texts))
		texts[path] = text
		v.SetString(text)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(7)
	}
}

var folded = regexp.MustCompile(`(?s)<details>.*?</details>`)

// TestNothingOfACardIsLeftOut: whatever a card says about what a yes gives and
// about the action stands on the page, unfolded; also what is added to cards one
// day.
func TestNothingOfACardIsLeftOut(t *testing.T) {
	var session, action approval.Card
	texts := map[string]string{}
	fill(reflect.ValueOf(&session.Granting).Elem(), "granting", texts)
	action.Granting = session.Granting
	action.Request = &approval.Request{}
	ofAction := map[string]string{}
	for len(ofAction) <= len(texts) { // texts of its own
		ofAction[fmt.Sprint("skip", len(ofAction))] = ""
	}
	fill(reflect.ValueOf(action.Request).Elem(), "request", ofAction)
	for name, text := range map[string]string{"session": render(t, viewOf(session)), "action": render(t, viewOf(action))} {
		text = folded.ReplaceAllString(text, "")
		wanted := texts
		if name == "action" {
			wanted = ofAction
		}
		for path, want := range wanted {
			if want == "" || path == "request.Digest" || path == "request.OperationID" || path == "request.Capability" {
				continue // these name the action; the granting names the capability
			}
			if !strings.Contains(text, want) && !(path == "granting.Capabilities.Confirm" && strings.Contains(text, "again for each action")) {
				t.Errorf("card of one %s: %s is not shown", name, path)
			}
		}
	}
}

func render(t *testing.T, v cardView) string {
	t.Helper()
	var b bytes.Buffer
	if err := templates.ExecuteTemplate(&b, "card.html", v); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestP04_WhatIsNotShownIsANote: the page says first that a part is missing.
func TestP04_WhatIsNotShownIsANote(t *testing.T) {
	card := approval.Card{Request: &approval.Request{Method: "POST", BodySize: 9, NotShown: 5}}
	if notes := viewOf(card).Notes; len(notes) != 1 || !strings.Contains(notes[0], "5 bytes of what is sent are NOT SHOWN") {
		t.Errorf("notes %q", notes)
	}
}
