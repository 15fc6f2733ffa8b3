package access

import (
	"fmt"
	"strings"
	"testing"
)

func TestH03_HostsHaveOneForm(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"https://api.example.com", "https://api.example.com:443"},
		{"HTTPS://API.Example.COM.", "https://api.example.com:443"},
		{"https://api.example.com:443", "https://api.example.com:443"},
		{"https://api.example.com.:8443", "https://api.example.com:8443"},
		{"https://bücher.example", "https://xn--bcher-kva.example:443"},
		{"https://BÜCHER.example", "https://xn--bcher-kva.example:443"},
		{"https://xn--bcher-kva.example", "https://xn--bcher-kva.example:443"},
		{"https://еxample.com", "https://xn--xample-2of.com:443"}, // Cyrillic е
		{"http://localhost", "http://localhost:80"},
		{"http://127.0.0.1:8080", "http://127.0.0.1:8080"},
		{"http://[::1]:8080", "http://[::1]:8080"},
		{"https://[2001:DB8::1]", "https://[2001:db8::1]:443"},
		{"https://192.0.2.1", "https://192.0.2.1:443"},
	} {
		o, err := parseOrigin(c.in)
		if err != nil || o.String() != c.want {
			t.Errorf("parseOrigin(%q) = %s, %v; want %s", c.in, o, err, c.want)
		}
		if again, err := parseOrigin(o.String()); err != nil || again != o {
			t.Errorf("parseOrigin(%q) = %s, %v", o, again, err)
		}
	}
}

func TestH03_RefusedHosts(t *testing.T) {
	for _, host := range []string{
		"", ".", "..", "*", "*.com", "*.example.com", "api.*.example.com", "api*.example.com", ".example.com", "a..b", "a.example..", "example.com..",
		"-a.example", "a-.example", "ab--c.example", "a_b.example", "a b.example", " a.example", "a.example ", "a.example\t", "a\x00.example", "a.exa\nmple",
		"xn--a.example", "xn--zzzzzz-.example", "xn--", "XN--BCHER-KVA.XN--", "a\u200db.example", "a\u00ad.example", "ａpi.example.com", "a。example", "a．example", "exa\u202emple.com",
		strings.Repeat("a", 64) + ".example", strings.Repeat("a.", 127) + "example",
		"2852039166", "0xA9FEA9FE", "0251.0376.0251.0376", "127.1", "127.0.0.01", "1.2.3", "1.2.3.4.5", "256.1.1.1", "1.2.3.0x4", "a.1", "a.0x", "0x7f.1", "127.0.0.1.5.",
		"[::1", "::1", "[::1]x", "[]", "[127.0.0.1]", "[::ffff:127.0.0.1]", "[::ffff:a9fe:a9fe]", "[fe80::1%25eth0]", "[fe80::1%eth0]", "[0:0::1]", "[a.example]", "[::1]]",
		"a.example:", "a.example:0", "a.example:65536", "a.example:-1", "a.example:+1", "a.example:0443", "a.example:https", "a.example:1:2", "[::1]:", "[::1]:x",
		"%61.example", "a%2eexample", "a.example%00", `a\.example`, "a.example,b.example", "a.example;b",
	} {
		if o, err := parseOrigin("https://" + host); err == nil {
			t.Errorf("host %q was read as %s", host, o)
		}
		if a, err := parseAddress(host, 22); err == nil {
			t.Errorf("address %q was read as %s", host, a)
		}
	}
}

// H04: an origin says scheme, host and port, and nothing that some parser
// could take for another host.
func TestH04_OriginIsNotAURL(t *testing.T) {
	for _, origin := range []string{
		"api.example.com", "//api.example.com", "https:/api.example.com", "https:api.example.com", "https://", "://a.example", " https://a.example",
		"https://api.example.com/", "https://api.example.com/v1", "https://api.example.com?x", "https://api.example.com#x", "https://api.example.com/?",
		"https://user@api.example.com", "https://user:pass@api.example.com", "http://api.example.com:x@192.0.2.1/", "http://api.example.com%2f@evil.test", "https://@a.example",
		`https://api.example.com\@evil.test`, `https://evil.test\.api.example.com`, "https://evil.test%00.api.example.com", "https://api.example.com:443:80", "https://https://a.example",
		"ftp://a.example", "ws://a.example", "file:///etc/passwd", "unix://x", "https\x00://a.example", "javascript:alert(1)",
	} {
		if o, err := parseOrigin(origin); err == nil {
			t.Errorf("origin %q was read as %s", origin, o)
		}
	}
}

// The file says what is wrong, not only that something is.
func TestH04_OriginProblemsAreNamed(t *testing.T) {
	for origin, want := range map[string]string{
		"https://user:pass@a.example":               "no user",
		"http://api.example.com:x@192.0.2.1/":       "no user",
		"https://a.example/":                        "no path",
		"https://a.example?x":                       "no path",
		"ftp://a.example":                           "scheme",
		"a.example":                                 "scheme://host",
		"https://a.example:99999":                   "port",
		"https://127.1":                             "four decimal numbers",
		"https://[0:0::1]":                          "[::1]",
		"https://[::ffff:8.8.8.8]":                  "8.8.8.8",
		"https://169.254.169.254":                   "metadata",
		"https://*.example":                         "not a valid name",
		"https://" + strings.Repeat("a", 64) + ".b": "not a valid name",
	} {
		if _, err := parseOrigin(origin); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want …%s…", origin, err, want)
		}
	}
}

func TestH13_PlainHTTP(t *testing.T) {
	file := func(origin, more string) string {
		return fmt.Sprintf("[credential.a]\nkind = \"bearer\"\norigin = \"%s\"\n%s\n", origin, more)
	}
	for _, origin := range []string{"http://localhost", "http://LOCALHOST.", "http://127.0.0.1:9", "http://127.9.9.9", "http://[::1]"} {
		p := mustParse(t, file(origin, ""))
		c, _ := p.Credential("a")
		if c.Insecure || !c.Private || !c.Origin.Loopback() {
			t.Errorf("%s: %+v", origin, c)
		}
	}
	for _, origin := range []string{"http://api.example.com", "http://api.example.com:443", "http://10.0.0.1", "http://localhost.example.com",
		"http://notlocalhost", "http://localhost.localdomain", "http://128.0.0.1", "http://[2001:db8::1]", "http://a.localhost", "HTTP://api.example.com"} {
		wantProblem(t, file(origin, ""), 3, "credential.a.origin", "insecure = true")
		wantProblem(t, file(origin, "insecure = false"), 3, "credential.a.origin", "insecure = true")
		p := mustParse(t, file(origin, "insecure = true"))
		if c, _ := p.Credential("a"); !c.Insecure || c.Origin.Loopback() {
			t.Errorf("%s: %+v", origin, c)
		}
	}
}

func TestPrivatePlacesAreNamed(t *testing.T) {
	for origin, want := range map[string]bool{
		"https://10.1.2.3": true, "https://172.31.0.1": true, "https://192.168.0.1": true, "https://100.64.0.1": true, "https://[fd12::1]": true,
		"https://127.0.0.1": true, "https://localhost": true, "https://203.0.113.1": true,
		"https://172.32.0.1": false, "https://8.8.8.8": false, "https://api.example.com": false, "https://[2a00::1]": false,
	} {
		p := mustParse(t, fmt.Sprintf("[credential.a]\nkind = \"bearer\"\norigin = \"%s\"\n", origin))
		if c, _ := p.Credential("a"); c.Private != want {
			t.Errorf("%s: private %v", origin, c.Private)
		}
	}
	p := mustParse(t, "[credential.a]\nkind = \"bearer\"\norigin = \"https://git.example\"\nprivate = true\n")
	if c, _ := p.Credential("a"); !c.Private {
		t.Error("private = true was not read")
	}
}

func TestUnreachableAddresses(t *testing.T) {
	for _, host := range []string{"169.254.169.254", "169.254.0.1", "[fe80::1]", "0.0.0.0", "0.1.2.3", "[::]", "255.255.255.255", "240.0.0.1", "224.0.0.1", "[ff02::1]",
		"[fd00:ec2::254]", "[fd20:ce::254]", "100.100.100.200", "192.0.0.192", "168.63.129.16"} {
		if o, err := parseOrigin("https://" + host); err == nil {
			t.Errorf("%s was accepted as %s", host, o)
		}
	}
}

func FuzzOrigin(f *testing.F) {
	seeds := []string{"https://a.example", "http://[::1]:80", "https://bücher.example.:8443", "https://127.1", "https://xn--bcher-kva.example"}
	if len(seeds) == 0 {
		f.Fatal("no seeds")
	}
	for _, s := range seeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		o, err := parseOrigin(in)
		if err != nil {
			return
		}
		again, err := parseOrigin(o.String())
		if err != nil || again != o {
			t.Fatalf("%q is %s, which is %s, %v", in, o, again, err)
		}
		for i := range len(o.Host) {
			if c := o.Host[i]; c <= ' ' || c >= 0x7f || strings.IndexByte(`/\@?#%*_[],;`, c) >= 0 || 'A' <= c && c <= 'Z' {
				t.Fatalf("%q has host %q", in, o.Host)
			}
		}
	})
}
