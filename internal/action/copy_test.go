package action

import (
	"strings"
	"testing"
)

func TestCopyPathsAreCanonical(t *testing.T) {
	good := CopyInput{Direction: Down, Local: "/home/ada/work/app.log", Remote: "/var/log/a b/ünï.log"}
	c, r := NewCopy(good)
	if r != nil || c.Local != good.Local || c.Remote != good.Remote || c.Direction != Down || c.Overwrite {
		t.Fatalf("%+v, %v", c, r)
	}
	ms := int64(600_001)
	for name, change := range map[string]func(*CopyInput){
		"no direction":       func(in *CopyInput) { in.Direction = "" },
		"both directions":    func(in *CopyInput) { in.Direction = "both" },
		"relative":           func(in *CopyInput) { in.Remote = "var/log/x" },
		"empty":              func(in *CopyInput) { in.Local = "" },
		"root":               func(in *CopyInput) { in.Remote = "/" },
		"a directory":        func(in *CopyInput) { in.Remote = "/var/log/" },
		"dots":               func(in *CopyInput) { in.Remote = "/var/log/../secret" },
		"one dot":            func(in *CopyInput) { in.Local = "/home/./x" },
		"final dots":         func(in *CopyInput) { in.Local = "/home/ada/.." },
		"empty segment":      func(in *CopyInput) { in.Remote = "/var//log/x" },
		"home":               func(in *CopyInput) { in.Local = "~/x" },
		"wildcard":           func(in *CopyInput) { in.Remote = "/var/log/*.log" },
		"NUL":                func(in *CopyInput) { in.Remote = "/var/log/x\x00y" },
		"line break":         func(in *CopyInput) { in.Local = "/home/x\ny" },
		"C1":                 func(in *CopyInput) { in.Local = "/home/x\u009by" },
		"not UTF-8":          func(in *CopyInput) { in.Remote = "/\xff" },
		"backslash":          func(in *CopyInput) { in.Remote = `/var/log/..\..\secret` },
		"too long":           func(in *CopyInput) { in.Remote = "/" + strings.Repeat("x", maxFilePath) },
		"too long a timeout": func(in *CopyInput) { in.TimeoutMS = &ms },
	} {
		in := good
		change(&in)
		if c, r := NewCopy(in); r == nil || r.Code != CodeBadRequest || c != nil {
			t.Errorf("%s: %+v, %v", name, c, r)
		}
	}
}

// What comes from a host may be asked for again; what goes there may not.
func TestCopyToAHostIsUnsafe(t *testing.T) {
	for direction, want := range map[string]bool{Up: true, Down: false} {
		c, r := NewCopy(CopyInput{Direction: direction, Local: "/a/b", Remote: "/c/d"})
		if r != nil {
			t.Fatal(r)
		}
		req := Request{Capability: "ssh-copy:x", Copy: c}
		if req.Unsafe() != want || req.Kind() != KindCopy {
			t.Errorf("%s: unsafe %v, kind %s", direction, req.Unsafe(), req.Kind())
		}
	}
	if (Request{SSH: &SSH{}, Copy: &Copy{}}).Kind() != "" {
		t.Error("two actions have a kind")
	}
}

func TestInputAndVariables(t *testing.T) {
	command := "x"
	s := mustSSH(t, SSHInput{Command: &command, StdinBase64: text("AAE="), Env: map[string]string{"LC_ALL": "C", "LANG": "de"}, PTY: true})
	if string(s.Stdin) != "\x00\x01" || !s.PTY || len(s.Env) != 2 || s.Env[0] != (Variable{"LANG", "de"}) || s.Env[1] != (Variable{"LC_ALL", "C"}) {
		t.Errorf("%+v", s)
	}
	many := map[string]string{}
	for i := range maxVariables + 1 {
		many["V"+strings.Repeat("x", i)] = ""
	}
	for name, in := range map[string]SSHInput{
		"input twice":          {Stdin: text("a"), StdinBase64: text("YQ==")},
		"no base64":            {StdinBase64: text("!")},
		"base64 and more":      {StdinBase64: text("YQ==\n!")},
		"too long":             {Stdin: text(strings.Repeat("x", maxStdin+1))},
		"a name with =":        {Env: map[string]string{"A=B": "x"}},
		"an empty name":        {Env: map[string]string{"": "x"}},
		"a name with a digit":  {Env: map[string]string{"1A": "x"}},
		"a name with a break":  {Env: map[string]string{"A\nB": "x"}},
		"a value with NUL":     {Env: map[string]string{"A": "x\x00"}},
		"a value with a break": {Env: map[string]string{"A": "x\ny"}},
		"a long value":         {Env: map[string]string{"A": strings.Repeat("x", maxVariable+1)}},
		"too many":             {Env: many},
	} {
		in.Command = &command
		if s, r := NewSSH(in); r == nil || r.Code != CodeBadRequest || s != nil {
			t.Errorf("%s: %+v, %v", name, s, r)
		}
	}
}
