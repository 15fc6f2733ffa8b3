package yetttest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/yett-broker/yett/internal/wire"
)

// kindsOfCredentials is one credential of each kind that stands in a request: what its table
// says, its value, and the parts of the value that are secret.
var kindsOfCredentials = []struct {
	name, table, value string
	secret             []string
}{
	{"k-header", `kind = "header"` + "\nheader = \"X-Api-Key\"\nprefix = \"key \"", "h3ader/value+of=it%", []string{"h3ader/value+of=it%"}},
	{"k-basic", `kind = "basic"`, "ädä:pa:ss wörd/9", []string{"pa:ss wörd/9"}},
	{"k-user", `kind = "basic"` + "\nuser = \"ada@example.com\"", "an0ther pa/ss+wörd", []string{"an0ther pa/ss+wörd"}},
	{"k-query", `kind = "query"` + "\nparameter = \"api_key\"", "qu3ry&value=/of it%", []string{"qu3ry&value=/of it%"}},
	{"k-cookie", `kind = "cookie"` + "\ncookie = \"session\"", "c00kie/value+of=it%", []string{"c00kie/value+of=it%"}},
	{"k-sigv4", `kind = "sigv4"` + "\nservice = \"s3\"\nregion = \"eu-central-1\"", "AKIDEXAMPLE:s3cret/of+the=key:t0ken/of+the=session",
		[]string{"s3cret/of+the=key", "t0ken/of+the=session"}},
}

// TestA09_EveryKindIsNowhere: of no value stands anything in what the agent reads,
// in rows, in what is printed or on disk, although the API sends back all of the
// request, points elsewhere with it, or is not there.
func TestA09_EveryKindIsNowhere(t *testing.T) {
	bodies := make(chan string, len(kindsOfCredentials)+1)
	up := StartUpstreamFunc(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		bodies <- r.Header.Get("Content-Type") + " " + string(body)
		w.Header().Set("Location", "https://elsewhere.example"+r.URL.RequestURI())
		for name, values := range r.Header {
			w.Header().Set("X-Echo-"+name, strings.Join(values, ", "))
		}
		w.WriteHeader(302)
		fmt.Fprintf(w, "%s %s\n%v\n%s", r.Method, r.URL.RequestURI(), r.Header, r.URL.Query())
	})
	var file strings.Builder
	values, granted := []string{}, []string{}
	all := canaries{}
	for _, k := range kindsOfCredentials {
		for name, origin := range map[string]string{k.name: up.URL, k.name + "-gone": "http://127.0.0.1:9"} {
			fmt.Fprintf(&file, "\n[credential.%s]\n%s\norigin = %q\n\n[capability.\"http:%s\"]\ncredential = %q\nmethods = [\"POST\"]\npaths = [\"/v1/**\"]\n", name, k.table, origin, name, name)
			values, granted = append(values, name, k.value), append(granted, "http:"+name)
		}
		for _, s := range k.secret {
			all.add(k.name, s)
		}
	}
	b := Start(t, file.String(), values...)
	c := b.Granted(granted...)
	action := map[string]any{"method": "POST", "path": "/v1/x", "query": map[string]any{"a": "1"}, "body_json": map[string]any{"b": []int{1, 2}, "a": "<x>"}}
	for _, k := range kindsOfCredentials {
		op := c.MustAct("http:"+k.name, action)
		var r struct {
			Status   int
			Redacted int
			BodyRef  string `json:"body_ref"`
		}
		must(t, json.Unmarshal(op.Result, &r))
		if r.Status != 302 || r.Redacted == 0 {
			t.Errorf("%s: %s", k.name, op.Result)
		}
		c.Must(wire.MethodOperationBody, c.Next(map[string]any{"body_ref": r.BodyRef, "offset": 0, "limit": 64 << 10}), nil)
		c.MustAct("http:"+k.name+"-gone", action).notSent(t)
	}
	if len(bodies) != len(kindsOfCredentials) {
		t.Errorf("%d requests arrived", len(bodies))
	}
	for range len(bodies) {
		if got := <-bodies; got != `application/json {"a":"<x>","b":[1,2]}` {
			t.Errorf("the body %q arrived", got)
		}
	}
	rows, err := json.Marshal(b.Activity())
	must(t, err)
	b.Must("access", "show")
	for where, text := range map[string][]byte{"what the agent read": c.Got.Bytes(), "a row": rows, "what was printed": b.Printed()} {
		all.search(t, where, text)
	}
	all.searchFiles(t, b.Home)
}
