package console_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/yett-broker/yett/internal/yetttest"
)

// hostile is what an API answers that wants to get at the page. Each of them
// would ask for the address if it were taken for what it says it is.
func hostile(address string) map[string][2]string {
	js := fmt.Sprintf(`window.pwned = 1; fetch(%[1]q); new Image().src = %[1]q; document.title = 'pwned'`, address)
	return map[string][2]string{
		"html": {"text/html", fmt.Sprintf(`</pre></section><script>%[1]s</script><img src=%[2]q onerror="%[3]s"><iframe src=%[2]q></iframe>`+
			`<link rel=stylesheet href=%[2]q><meta http-equiv=refresh content="0;url=%[2]s"><form action=%[2]q><button autofocus onfocus="%[3]s">`, js, address, strings.ReplaceAll(js, `"`, "&quot;"))},
		"svg": {"image/svg+xml", fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" onload="%s"><script href=%q/><image href=%q/></svg>`, strings.ReplaceAll(js, `"`, "&quot;"), address, address)},
		"js":  {"text/javascript", js},
	}
}

// long is a text of several pieces, whose characters do not end where pieces do.
var long = "x" + strings.Repeat("é\u202e\tz\r\n", 8000)

// TestABodyIsShownAndDoesNothing: what an API answered stands on the page as a
// text. Nothing of it is markup, a script or an address there, whatever it says
// it is; what is no text is named by its digest; a long one comes piece by piece,
// each of its characters once; one that is not kept any more is said to be gone;
// and without a proof nobody reads one.
func TestABodyIsShownAndDoesNothing(t *testing.T) {
	t.Parallel()
	canaryServer := yetttest.StartUpstreamFunc(t, func(http.ResponseWriter, *http.Request) {})
	bodies := hostile(canaryServer.URL + "/canary")
	binary := append([]byte{0x89, 'P', 'N', 'G', 0}, bytes.Repeat([]byte("<script>"), 40_000)...)
	up := yetttest.StartUpstreamFunc(t, func(w http.ResponseWriter, r *http.Request) {
		switch name := filepath.Base(r.URL.Path); name {
		case "binary":
			w.Header().Set("Content-Type", "image/png")
			w.Write(binary)
		case "long":
			w.Write([]byte(long))
		default:
			w.Header().Set("Content-Type", bodies[name][0])
			w.Write([]byte(bodies[name][1]))
		}
	})
	s := start(t, up.Access(), "demo", canary)
	agent := s.Granted("http:demo.read")
	page := s.openProven()
	show := func(name string) {
		t.Helper()
		op := agent.MustAct("http:demo.read", map[string]any{"method": "GET", "path": "/v1/" + name})
		eval[bool](page, fmt.Sprintf(`(location.hash = '#operation/%s', true)`, op.OperationID))
		page.wait(fmt.Sprintf(`document.querySelector('[data-view=operation] .came button').dataset.id === %q`, op.OperationID))
		page.click(".came button")
		page.wait(`document.querySelector('.came pre, .came .error')`)
	}
	for name, body := range bodies {
		show(name)
		if shown := eval[string](page, `document.querySelector('.came pre').textContent`); shown != body[1] {
			t.Errorf("%s is shown as\n%s", name, shown)
		}
		if n := eval[int](page, `document.querySelectorAll('.came pre *, main script, main img, main iframe, main svg, main link, main meta').length`); n != 0 {
			t.Errorf("%s: %d elements came from the answer", name, n)
		}
		page.hasNoFault("the body " + name)
	}
	if eval[bool](page, `'pwned' in window || document.title.includes('pwned')`) {
		t.Error("a script of an answer ran")
	}
	show("binary")
	if said := page.text(".came"); !strings.Contains(said, fmt.Sprintf("%x", sha256.Sum256(binary))) || !strings.Contains(said, fmt.Sprint(len(binary), " bytes")) || !strings.Contains(said, "89 50 4e 47") {
		t.Errorf("what is no text is shown as\n%s", said)
	}
	show("long")
	if got := page.pieces(); got != strings.NewReplacer("\u202e", `\u{202E}`, "\r\n", "\n", "\t", "    ").Replace(long) {
		t.Errorf("the pieces of a long text make %d bytes, not %d", len(got), len(long))
	}
	s.readsNoBody(page)
	page.saysGone(s)
	read := 0
	for _, r := range s.Activity() {
		if r.Kind == "body.read" {
			read++
		}
	}
	if want := len(bodies) + 2; read != want {
		t.Errorf("%d rows tell of %d bodies that were read", read, want)
	}
	if seen := canaryServer.Seen(); len(seen) != 0 {
		t.Errorf("an answer asked for something: %v", seen)
	}
}

// pieces reads a body to its end, as a person does.
func (tb *tab) pieces() (all string) {
	tb.t.Helper()
	for n := 1; ; n++ {
		all += eval[string](tb, `document.querySelector('.came pre').textContent`)
		if !eval[bool](tb, `(window.old = document.querySelector('.came pre'), window.next = [...document.querySelectorAll('.came [data-piece] button')].find((b) => b.innerText === 'Next'), !!window.next)`) {
			if n < 3 {
				tb.t.Errorf("a long body has %d pieces", n)
			}
			return all
		}
		eval[bool](tb, `(window.next.click(), true)`)
		tb.wait(`document.querySelector('.came pre') !== window.old`)
	}
}

// readsNoBody: an address of a body is of no use without the page's token, and
// with it the answer is nothing that a browser would take for anything else.
func (s *site) readsNoBody(page *tab) {
	s.t.Helper()
	address := "/view/body?" + eval[string](page, `new URLSearchParams({id: document.querySelector('.came button').dataset.id, stream: 'body', from: '1'}).toString()`)
	if a := page.fetch(address, "", nil); a.Status != 401 || strings.Contains(string(a.Body), "é") {
		s.t.Errorf("without a token: %d %.200s", a.Status, a.Body)
	}
	var asked struct{ Token string }
	if a := page.fetch("/passkeys", "", nil); json.Unmarshal(a.Body, &asked) == nil && asked.Token != "" {
		s.t.Error("asking for passkeys gives a token")
	}
	head := eval[map[string]string](page, fmt.Sprintf(`fetch(%q).then((r) => Object.fromEntries(r.headers))`, address))
	if head["x-content-type-options"] != "nosniff" || !strings.Contains(head["content-security-policy"], "default-src 'none'") || !strings.HasPrefix(head["content-type"], "application/json") {
		s.t.Errorf("the answer without a token: %v", head)
	}
}

// saysGone: a body whose file has gone meanwhile.
func (tb *tab) saysGone(s *site) {
	tb.t.Helper()
	files, err := filepath.Glob(filepath.Join(s.Home, "bodies", "*.body"))
	if err != nil || len(files) == 0 {
		tb.t.Fatalf("%d bodies: %v", len(files), err)
	}
	for _, f := range files {
		if err := os.Remove(f); err != nil {
			tb.t.Fatal(err)
		}
	}
	tb.click(".came > button")
	tb.wait(`document.querySelector('.came .error')`)
	if said := tb.text(".came .error"); !strings.Contains(said, "kept no longer") {
		tb.t.Errorf("of a body that has gone it says %q", said)
	}
}
