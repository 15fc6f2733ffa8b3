package access

import (
	"strings"
	"testing"
)

func TestDiff(t *testing.T) {
	p := mustParse(t, good)
	if d := p.Diff(p); d != "" {
		t.Errorf("a policy differs from itself:\n%s", d)
	}
	changed := strings.NewReplacer(
		"https://API.Billing.Example.", "https://api.billing.example:8443",
		`"/v1/invoices/**"`, `"/v1/customers/*"`,
		`"300/h"`, `"10/m"`,
		`"http:dev.all"`, `"http:dev.some"`,
		`"uptime", `, "\"uptime\", \"echo \u202e'x'\", ",
		`user      = "deploy"`, `user      = "root"`,
	).Replace(good)
	got := mustParse(t, changed).Diff(p)
	want := `~ credential.billing
    - place: https://api.billing.example:443
    + place: https://api.billing.example:8443
~ credential.deploy-key
    - place: deploy@[2001:db8::1]:2222,deploy@web1.example.net:22
    + place: root@[2001:db8::1]:2222,root@web1.example.net:22
~ host.web1
    - user: deploy
    + user: root
~ host.web2
    - user: deploy
    + user: root
~ capability."http:billing.read"
    - path: /v1/invoices/**
    - budget: 300/h
    + path: /v1/customers/*
    + budget: 10/m
- capability."http:dev.all"
    - credential: dev
    - method: GET
    - method: PROPFIND
    - path: /**
    - query: only the names below
    - confirm: each
    - repeat: may be repeated while an equal action is unresolved
+ capability."http:dev.some"
    + credential: dev
    + method: GET
    + method: PROPFIND
    + path: /**
    + query: only the names below
    + confirm: each
    + repeat: may be repeated while an equal action is unresolved
~ capability."ssh:web1.status"
    + command: "echo \u202e'x'"
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for range 20 {
		if again := mustParse(t, changed).Diff(p); again != got {
			t.Fatal("the order is not stable")
		}
	}
}

func TestDiffFromNothing(t *testing.T) {
	p := mustParse(t, good)
	d := p.Diff(nil)
	for _, line := range []string{"+ credential.dev\n", "    + insecure: plain http without protection\n", "    + host key: " + keyA + " (SHA256:ZkAslGjFiUHdGf/WUL8rQvkib4PTvQatUV0OUQSncCA)\n", "+ capability.\"ssh:web1.status\"\n"} {
		if !strings.Contains(d, line) {
			t.Errorf("no line %q in\n%s", line, d)
		}
	}
	if strings.Contains(d, "~ ") || strings.Contains(d, "- c") {
		t.Errorf("something was taken away from nothing:\n%s", d)
	}
	if d := mustParse(t, "").Diff(p); strings.Contains(d, "+") && !strings.Contains(d, "- credential.billing\n") {
		t.Errorf("to nothing:\n%s", d)
	}
}
