package approval

import "slices"

// Clickable reports whether a click is proof enough for a card: every action that
// a yes gives has to be one that only reads, over HTTP, and none may have been
// done already with an outcome that nobody knows, or have a part that is not
// shown. What drives the browser can
// click too.
func Clickable(c Card) bool {
	if c.Granting.Note != "" || len(c.Granting.Capabilities) == 0 {
		return false
	}
	if r := c.Request; r != nil {
		return readsOnly(r.Method) && r.NotShown == 0
	}
	return !slices.ContainsFunc(c.Granting.Capabilities, func(g Capability) bool {
		return len(g.Methods) == 0 || slices.ContainsFunc(g.Methods, func(m string) bool { return !readsOnly(m) })
	})
}

func readsOnly(method string) bool { return method == "GET" || method == "HEAD" || method == "OPTIONS" }
