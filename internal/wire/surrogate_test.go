package wire

import "testing"

// TestM15_HalfASurrogatePairIsNoText: encoding/json would turn it into U+FFFD,
// and two different requests into one.
func TestM15_HalfASurrogatePairIsNoText(t *testing.T) {
	for text, good := range map[string]bool{
		`\ud83d\ude00`: true, `\u00e9`: true, `\uffff`: true, `\\ud800`: true,
		`\ud800`: false, `\udc00`: false, `\ud800x`: false, `\ud800\u0041`: false, `\ud800\ud800`: false, `\ud83d\\ude00`: false, `\ud83d\u`: false,
	} {
		_, fail := DecodeRequest([]byte(`{"jsonrpc":"2.0","id":1,"method":"` + text + `","params":{}}`))
		if (fail == nil) != good {
			t.Errorf("%s: %v", text, fail)
		}
	}
}
