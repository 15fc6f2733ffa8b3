package httpexec

import (
	"strings"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/action"
)

// TestSigV4Published signs the requests of AWS's own documentation and must come
// to the signatures that are printed there: the SigV4 test suite ('get-vanilla'
// and so on, with the service called 'service'), and the four examples of 'Signature
// Calculations for the Authorization Header' in the API reference of Amazon S3.
func TestSigV4Published(t *testing.T) {
	suite := Credential{Kind: KindSigV4, Service: "service", Region: "us-east-1", Secret: []byte("AKIDEXAMPLE:wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")}
	token := suite
	token.Secret = append(append([]byte{}, suite.Secret...), ":6e86291e8372ff2a2260956d9b8aae1d763fbf315fa00fa31553b73ebf194267"...)
	s3 := Credential{Kind: KindSigV4, Service: "s3", Region: "us-east-1", Secret: []byte("AKIAIOSFODNN7EXAMPLE:wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")}
	const unreserved = "-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	suiteTime := time.Date(2015, 8, 30, 12, 36, 0, 0, time.UTC)
	s3Time := time.Date(2013, 5, 24, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name              string
		c                 Credential
		r                 action.HTTP
		signed, signature string
	}{
		{"get-vanilla", suite, action.HTTP{Method: "GET", Path: "/"},
			"host;x-amz-date", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"},
		{"post-vanilla", suite, action.HTTP{Method: "POST", Path: "/"},
			"host;x-amz-date", "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"},
		{"get-unreserved", suite, action.HTTP{Method: "GET", Path: "/" + unreserved},
			"host;x-amz-date", "07ef7494c76fa4850883e2b006601f940f8a34d404d0cfa977f52a65bbf5f24f"},
		{"get-vanilla-query-order-key-case", suite, action.HTTP{Method: "GET", Path: "/", Query: "Param1=value1&Param2=value2"},
			"host;x-amz-date", "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"},
		{"get-vanilla-query-unreserved", suite, action.HTTP{Method: "GET", Path: "/", Query: unreserved + "=" + unreserved},
			"host;x-amz-date", "9c3e54bfcdf0b19771a7f523ee5669cdf59bc7cc0884027167c21bb143a40197"},
		{"get-vanilla-utf8-query", suite, action.HTTP{Method: "GET", Path: "/", Query: "%E1%88%B4=bar"},
			"host;x-amz-date", "2cdec8eed098649ff3a119c94853b13c643bcf08f8b0a1d91e12c9027818dd04"},
		{"get-header-value-trim", suite, action.HTTP{Method: "GET", Path: "/", Headers: []action.Header{{Name: "My-Header1", Value: "value1"}, {Name: "My-Header2", Value: `"a   b   c"`}}},
			"host;my-header1;my-header2;x-amz-date", "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736"},
		{"post-x-www-form-urlencoded", suite, action.HTTP{Method: "POST", Path: "/", Headers: []action.Header{{Name: "Content-Type", Value: "application/x-www-form-urlencoded"}}, Body: []byte("Param1=value1")},
			"content-type;host;x-amz-date", "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a"},
		{"get-vanilla-with-session-token", token, action.HTTP{Method: "GET", Path: "/"},
			"host;x-amz-date;x-amz-security-token", "07ec1639c89043aa0e3e2de82b96708f198cceab042d4a97044c66dd9f74e7f8"},

		{"S3: GET Object", s3, action.HTTP{Method: "GET", Path: "/test.txt", Headers: []action.Header{{Name: "Range", Value: "bytes=0-9"}}},
			"host;range;x-amz-content-sha256;x-amz-date", "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"},
		{"S3: PUT Object", s3, action.HTTP{Method: "PUT", Path: "/test$file.text", Headers: []action.Header{{Name: "Date", Value: "Fri, 24 May 2013 00:00:00 GMT"},
			{Name: "X-Amz-Storage-Class", Value: "REDUCED_REDUNDANCY"}}, Body: []byte("Welcome to Amazon S3.")},
			"date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class", "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"},
		{"S3: GET Bucket Lifecycle", s3, action.HTTP{Method: "GET", Path: "/", Query: "lifecycle="},
			"host;x-amz-content-sha256;x-amz-date", "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"},
		{"S3: Get Bucket (List Objects)", s3, action.HTTP{Method: "GET", Path: "/", Query: "max-keys=2&prefix=J"},
			"host;x-amz-content-sha256;x-amz-date", "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"},
	} {
		target, now := Target{Scheme: "https", Host: "example.amazonaws.com", Port: 443}, suiteTime
		if c.c.Service == "s3" {
			target.Host, now = "examplebucket.s3.amazonaws.com", s3Time
		}
		w, err := compose(target, c.c, c.r, now)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		got := ""
		for _, f := range w.fields {
			if f.name == "Authorization" {
				got = f.text + string(f.secret)
			}
		}
		if !strings.HasSuffix(got, "SignedHeaders="+c.signed+", Signature="+c.signature) {
			t.Errorf("%s: %s\nwant SignedHeaders=%s, Signature=%s", c.name, got, c.signed, c.signature)
		}
	}
}

func TestAccessKeyForm(t *testing.T) {
	for value, want := range map[string]string{
		"AKIDEXAMPLE:wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY":            "",
		"AKIDEXAMPLE:wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY:FwoGZXIvYX": "",
		"wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY":                        "no colon",
		":wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY":                       "no access key id",
		"a/b:wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY":                    "no access key id",
		"AKIDEXAMPLE:short": "too short",
		"AKIDEXAMPLE:wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLE:":  "session token",
		"AKIDEXAMPLE:wJalrXUtnFEMI/K7MDENG\nbPxRfiCYEXAMPLE1": "line break",
	} {
		err := Credential{Kind: KindSigV4, Service: "s3", Region: "us-east-1", Secret: []byte(value)}.Check()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want …%s…", value, err, want)
		}
	}
}
