package yetttest

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/yett-broker/yett/docs/vectors"
	"github.com/yett-broker/yett/internal/wire"
)

// vectorFile is one file of docs/vectors. Its README.md is the description of
// the format.
type vectorFile struct {
	About   string   `json:"about"`
	Vectors []vector `json:"vectors"`
}

type vector struct {
	Name  string            `json:"name"`
	Rule  string            `json:"rule"`
	Begin map[string]string `json:"begin"`
	Steps []step            `json:"steps"`
}

type step struct {
	On       string            `json:"on"`
	Send     string            `json:"send"`
	Base64   string            `json:"send_base64"`
	PadTo    int               `json:"pad_to"`
	Call     []json.RawMessage `json:"call"`
	Later    string            `json:"later"`
	ReplyTo  string            `json:"reply_to"`
	ID       json.RawMessage   `json:"id"`
	Result   json.RawMessage   `json:"result"`
	Error    string            `json:"error"`
	Data     json.RawMessage   `json:"data"`
	Absent   []string          `json:"absent"`
	Save     map[string]string `json:"save"`
	Closed   bool              `json:"closed"`
	Person   string            `json:"person"`
	Upstream []string          `json:"upstream"`
	Release  bool              `json:"release"`
	Row      json.RawMessage   `json:"row"`
}

func decodeStrict(t *testing.T, name string, v any) {
	t.Helper()
	raw, err := vectors.Files.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// world is what all vectors share: one broker, one upstream, one person.
type world struct {
	b      *Broker
	up     *Upstream
	held   *holding
	person *person
	got    bytes.Buffer // every byte that came on any channel
}

// holding keeps requests below /v1/hold/ until they are released.
type holding struct {
	mu   sync.Mutex
	open chan struct{}
}

func (h *holding) gate() chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.open
}

func (h *holding) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	close(h.open)
	h.open = make(chan struct{})
}

// upstream answers as docs/vectors/README.md says.
func (h *holding) upstream(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer "+canary {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	switch {
	case strings.HasPrefix(r.URL.Path, "/v1/hold/"):
		select {
		case <-h.gate():
		case <-r.Context().Done():
			return
		}
	case strings.HasPrefix(r.URL.Path, "/v1/drop/"):
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			conn.Close()
		}
		return
	}
	w.Header().Set("Content-Type", "text/plain")
	w.Header()["Date"] = nil
	switch {
	case strings.HasPrefix(r.URL.Path, "/v1/lines/"):
		fmt.Fprint(w, "a\u2028b\u2029c")
	case strings.HasPrefix(r.URL.Path, "/v1/echo/"):
		fmt.Fprint(w, r.Header.Get("Authorization"))
	default:
		fmt.Fprint(w, "hello")
	}
}

func TestVectors(t *testing.T) {
	h := &holding{open: make(chan struct{})}
	up := StartUpstreamFunc(t, h.upstream)
	t.Cleanup(h.release)
	file, err := vectors.Files.ReadFile("access.toml")
	if err != nil {
		t.Fatal(err)
	}
	b := Start(t, strings.ReplaceAll(string(file), "${upstream}", up.URL), "demo", canary)
	w := &world{b: b, up: up, held: h, person: newPerson(b)}

	var begin map[string][]step
	decodeStrict(t, "begin.json", &begin)
	entries, err := vectors.Files.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	names := map[string]bool{}
	for _, e := range entries {
		if path.Ext(e.Name()) != ".json" || e.Name() == "begin.json" {
			continue
		}
		var f vectorFile
		decodeStrict(t, e.Name(), &f)
		if len(f.Vectors) == 0 || f.About == "" {
			t.Errorf("%s has no vectors, or does not say what it is about", e.Name())
		}
		for _, v := range f.Vectors {
			ran++
			if v.Name == "" || v.Rule == "" || names[e.Name()+v.Name] || len(v.Steps) == 0 {
				t.Fatalf("%s: the vector %q lacks a name of its own, a rule or steps", e.Name(), v.Name)
			}
			names[e.Name()+v.Name] = true
			t.Run(strings.TrimSuffix(e.Name(), ".json")+"/"+v.Name, func(t *testing.T) { w.run(t, begin, v) })
		}
	}
	if ran < 100 {
		t.Errorf("only %d vectors ran", ran)
	}
	for _, form := range []string{canary, base64.StdEncoding.EncodeToString([]byte(canary)), hex.EncodeToString([]byte(canary))} {
		if bytes.Contains(w.got.Bytes(), []byte(form)) || bytes.Contains(b.Printed(), []byte(form)) {
			t.Errorf("the secret got out as %s", form)
		}
	}
	for _, sep := range []string{"\u2028", "\u2029"} {
		if bytes.Contains(w.got.Bytes(), []byte(sep)) {
			t.Errorf("%+q stands in a reply", sep)
		}
	}
	noRace(t, b)
	if r := b.Run("audit", "verify", "--json"); r.Code != 0 {
		t.Errorf("audit: %s %s", r.Stdout, r.Stderr)
	}
}

// running is one vector under way.
type running struct {
	t     *testing.T
	w     *world
	chans map[string]*vectorChannel
	vars  map[string]string
	later map[string]pendingReply
	seen  int // requests at the upstream before
	rows  int64
}

type vectorChannel struct {
	net.Conn
	in      *wire.FrameReader
	got     bytes.Buffer
	name    string
	id      int
	replies map[string]Reply // came before it was asked for
	closed  bool
}

type pendingReply struct {
	ch *vectorChannel
	id string
}

func (w *world) run(t *testing.T, begin map[string][]step, v vector) {
	r := &running{t: t, w: w, chans: map[string]*vectorChannel{}, vars: map[string]string{}, later: map[string]pendingReply{}, seen: len(w.up.Seen())}
	w.b.T = t
	defer func() {
		for _, ch := range r.chans {
			ch.Close()
			w.got.Write(ch.got.Bytes())
		}
		w.person.restore(t)
		w.b.T = w.person.root
	}()
	for _, on := range sortedKeys(v.Begin) {
		kind, capability, _ := strings.Cut(v.Begin[on], " ")
		steps, ok := begin[kind]
		if !ok {
			t.Fatalf("there is no beginning %q", kind)
		}
		r.vars[on+".capability"] = capability
		for _, s := range steps {
			s.On = on
			s.Person = strings.ReplaceAll(s.Person, "$on", on)
			r.step(fmt.Sprintf("begin %s", on), s)
		}
	}
	for i, s := range v.Steps {
		r.step(fmt.Sprintf("step %d", i+1), s)
	}
	for _, on := range sortedKeys(r.chans) {
		if ch := r.chans[on]; !ch.closed {
			r.stillOpen(ch)
		}
	}
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	for i := range keys {
		for j := i; j > 0 && keys[j] < keys[j-1]; j-- {
			keys[j], keys[j-1] = keys[j-1], keys[j]
		}
	}
	return keys
}

// stillOpen asks for what does not exist: an answer shows an open channel.
func (r *running) stillOpen(ch *vectorChannel) {
	r.t.Helper()
	r.write(ch, []byte(`{"jsonrpc":"2.0","id":"open?","method":"no.such.method","params":{}}`+"\n"))
	if reply := r.await("at the end", ch, `"open?"`); reply.Code() != "bad_request" && reply.Code() != "protocol_error" {
		r.t.Fatalf("at the end: channel %s answers %q", ch.name, reply.Code())
	}
}

func (r *running) channel(name string) *vectorChannel {
	r.t.Helper()
	if ch := r.chans[name]; ch != nil {
		return ch
	}
	ch := &vectorChannel{name: name, replies: map[string]Reply{}}
	if strings.HasPrefix(name, "other") {
		ch.Conn = dialElsewhere(r.t, r.w.b.Home)
	} else {
		ch.Conn = r.w.b.Dial().Conn()
	}
	ch.in = wire.NewFrameReader(io.TeeReader(ch.Conn, &ch.got))
	r.chans[name] = ch
	return ch
}

func (r *running) write(ch *vectorChannel, p []byte) {
	r.t.Helper()
	ch.SetWriteDeadline(time.Now().Add(Patience))
	if _, err := ch.Write(p); err != nil {
		r.t.Logf("writing to the broker: %v", err)
	}
}

// read returns the next reply; ok is false when the broker closed the channel.
func (r *running) read(ch *vectorChannel) (reply Reply, ok bool) {
	r.t.Helper()
	ch.SetReadDeadline(time.Now().Add(Patience))
	line, err := ch.in.Next()
	if ne, is := err.(net.Error); is && ne.Timeout() {
		r.t.Fatalf("the broker did not answer on channel %s", ch.name)
	}
	if err != nil {
		return Reply{}, false
	}
	if err := json.Unmarshal(line, &reply); err != nil {
		r.t.Fatalf("the reply is not JSON: %v\n%s", err, line)
	}
	return reply, true
}

var variable = regexp.MustCompile(`\$\{([^}]+)\}`)

func (r *running) fill(s string, ch *vectorChannel) string {
	return variable.ReplaceAllStringFunc(s, func(m string) string {
		name := m[2 : len(m)-1]
		if name == "pad" {
			return m
		}
		if !strings.Contains(name, ".") && ch != nil {
			name = ch.name + "." + name
		}
		v, ok := r.vars[name]
		if !ok {
			r.t.Fatalf("there is no value for ${%s}", name)
		}
		return v
	})
}

func (r *running) step(where string, s step) {
	r.t.Helper()
	if s.On == "" && s.ReplyTo == "" && s.Person == "" && s.Upstream == nil && s.Row == nil && !s.Release {
		s.On = "a"
	}
	var ch *vectorChannel
	if s.On != "" {
		ch = r.channel(s.On)
	}
	switch {
	case s.Person != "":
		r.w.person.do(r, where, r.fill(s.Person, ch))
		return
	case s.Upstream != nil:
		r.upstream(where, s.Upstream)
		return
	case s.Release:
		r.w.held.release()
		return
	case s.Row != nil:
		r.row(where, s)
		return
	case s.ReplyTo != "":
		p, ok := r.later[s.ReplyTo]
		if !ok {
			r.t.Fatalf("%s: no request is called %q", where, s.ReplyTo)
		}
		r.judge(where, s, p.ch, p.id)
		return
	}
	id := "null"
	switch {
	case s.Call != nil:
		ch.id++
		id = fmt.Sprint(ch.id)
		line := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%s,"params":%s}`, id, s.Call[0], r.fill(string(s.Call[1]), ch))
		r.write(ch, []byte(line+"\n"))
	case s.Base64 != "":
		raw, err := base64.StdEncoding.DecodeString(s.Base64)
		if err != nil {
			r.t.Fatal(err)
		}
		r.write(ch, append(raw, '\n'))
	case s.Send != "":
		line := r.fill(s.Send, ch)
		if s.PadTo > 0 {
			line = strings.Replace(line, "${pad}", strings.Repeat("x", s.PadTo-len(line)+len("${pad}")), 1)
		}
		r.write(ch, []byte(line+"\n"))
	}
	if len(s.ID) > 0 {
		id = sameID(s.ID)
	}
	if s.Later != "" {
		r.later[s.Later] = pendingReply{ch, id}
		return
	}
	if s.Result == nil && s.Error == "" {
		if s.Closed {
			r.mustClose(where, ch)
			return
		}
		if s.Send == "" && s.Base64 == "" {
			r.t.Fatalf("%s expects nothing", where)
		}
		return
	}
	r.judge(where, s, ch, id)
}

// sameID writes an id so that equal ones are equal: a string may be escaped in
// several ways, a number comes back as it was sent.
func sameID(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil && len(raw) > 0 && raw[0] == '"' {
		out, _ := json.Marshal(text)
		return string(out)
	}
	return string(raw)
}

// await reads until the reply with an id is there.
func (r *running) await(where string, ch *vectorChannel, id string) Reply {
	r.t.Helper()
	for {
		if reply, ok := ch.replies[id]; ok {
			delete(ch.replies, id)
			return reply
		}
		reply, ok := r.read(ch)
		if !ok {
			r.t.Fatalf("%s: the broker closed channel %s; waiting for the reply to %s", where, ch.name, id)
		}
		ch.replies[sameID(reply.ID)] = reply
	}
}

func (r *running) mustClose(where string, ch *vectorChannel) {
	r.t.Helper()
	if reply, ok := r.read(ch); ok {
		r.t.Fatalf("%s: channel %s is open and says %s %s", where, ch.name, reply.Code(), reply.Result)
	}
	ch.closed = true
}

// judge holds a reply against what the step wants of it.
func (r *running) judge(where string, s step, ch *vectorChannel, id string) {
	r.t.Helper()
	reply := r.await(where, ch, id)
	raw, _ := json.Marshal(reply)
	if s.Error != "" {
		if reply.Error == nil || reply.Code() != s.Error {
			r.t.Fatalf("%s: want the error %s, got %s", where, s.Error, raw)
		}
		if next, _ := reply.Error.Data["next_step"].(string); reply.Error.Code != -32000 || reply.Error.Message == "" || next == "" {
			r.t.Fatalf("%s: an error lacks code, sentence or next step: %s", where, raw)
		}
		data, _ := json.Marshal(reply.Error.Data)
		r.match(where, s.Data, data, ch)
	} else {
		if reply.Error != nil {
			r.t.Fatalf("%s: want a result, got %s", where, raw)
		}
		r.match(where, s.Result, reply.Result, ch)
	}
	var tree any
	json.Unmarshal(raw, &tree)
	for _, p := range s.Absent {
		if v, ok := lookup(tree, p); ok {
			r.t.Fatalf("%s: %s must not be there, and is %v", where, p, v)
		}
	}
	for name, p := range s.Save {
		v, ok := lookup(tree, p)
		if !ok {
			r.t.Fatalf("%s: there is no %s in %s", where, p, raw)
		}
		r.vars[ch.name+"."+name] = fmt.Sprint(v)
	}
	if s.Closed {
		r.mustClose(where, ch)
	}
}

// lookup follows a dotted path.
func lookup(tree any, p string) (any, bool) {
	for name := range strings.SplitSeq(p, ".") {
		m, ok := tree.(map[string]any)
		if !ok {
			return nil, false
		}
		if tree, ok = m[name]; !ok {
			return nil, false
		}
	}
	return tree, true
}

func (r *running) match(where string, pattern, got json.RawMessage, ch *vectorChannel) {
	r.t.Helper()
	if pattern == nil {
		return
	}
	var want, have any
	if err := json.Unmarshal([]byte(r.fill(string(pattern), ch)), &want); err != nil {
		r.t.Fatalf("%s: the pattern is not JSON: %v", where, err)
	}
	json.Unmarshal(got, &have)
	if why := differs("", want, have); why != "" {
		r.t.Fatalf("%s: %s\nin %s", where, why, got)
	}
}

// differs holds a value against a pattern and says what is wrong.
func differs(at string, want, have any) string {
	switch want := want.(type) {
	case map[string]any:
		m, ok := have.(map[string]any)
		if !ok {
			return fmt.Sprintf("%s: want an object, got %v", at, have)
		}
		for k, w := range want {
			h, ok := m[k]
			if !ok {
				return fmt.Sprintf("%s.%s is missing", at, k)
			}
			if why := differs(at+"."+k, w, h); why != "" {
				return why
			}
		}
		return ""
	case []any:
		a, ok := have.([]any)
		if !ok || len(a) != len(want) {
			return fmt.Sprintf("%s: want %d elements, got %v", at, len(want), have)
		}
		for i := range want {
			if why := differs(fmt.Sprintf("%s[%d]", at, i), want[i], a[i]); why != "" {
				return why
			}
		}
		return ""
	case string:
		if ok, known := kinds(want, have); known {
			if !ok {
				return fmt.Sprintf("%s: want %s, got %v", at, want, have)
			}
			return ""
		}
	}
	if !reflect.DeepEqual(want, have) {
		return fmt.Sprintf("%s: want %v, got %v", at, want, have)
	}
	return ""
}

// kinds judges the patterns that stand for a kind of value.
func kinds(pattern string, have any) (ok, known bool) {
	text, isText := have.(string)
	number, isNumber := have.(float64)
	switch pattern {
	case "@any":
		return have != nil, true
	case "@string":
		return isText && text != "", true
	case "@id":
		_, random, ok := strings.Cut(text, "_")
		return ok && len(random) >= 26, true
	case "@integer":
		return isNumber && number == float64(int64(number)), true
	case "@time":
		_, err := time.Parse(time.RFC3339, text)
		return err == nil, true
	case "@activity":
		return regexp.MustCompile(`^activity:[1-9][0-9]*$`).MatchString(text), true
	}
	return false, false
}

// upstream holds what arrived since the vector began against a list.
func (r *running) upstream(where string, want []string) {
	r.t.Helper()
	deadline := time.Now().Add(Patience)
	for {
		got := r.w.up.Seen()[r.seen:]
		if reflect.DeepEqual(append([]string{}, want...), append([]string{}, got...)) {
			return
		}
		if len(got) > len(want) || time.Now().After(deadline) {
			r.t.Fatalf("%s: at the upstream arrived %q, not %q", where, got, want)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// row waits for a row of the ledger that matches.
func (r *running) row(where string, s step) {
	r.t.Helper()
	var want any
	if err := json.Unmarshal([]byte(r.fill(string(s.Row), nil)), &want); err != nil {
		r.t.Fatalf("%s: %v", where, err)
	}
	deadline := time.Now().Add(Patience)
	why := "there is none"
	for !time.Now().After(deadline) {
		for _, raw := range r.w.person.rows(r.t, &r.rows) {
			var have any
			json.Unmarshal(raw, &have)
			d := differs("", want, have)
			if d == "" {
				return
			}
			if strings.Contains(string(raw), fmt.Sprint(want.(map[string]any)["kind"])) {
				why = d + " in " + string(raw)
			}
		}
		time.Sleep(5 * time.Millisecond)
	}
	r.t.Fatalf("%s: no row matches; %s", where, why)
}

func init() {
	if home := os.Getenv("YETTTEST_RELAY"); home != "" {
		relay(home)
		os.Exit(0)
	}
}
