package console

import (
	"embed"
	"net/http"
	"strconv"
)

//go:embed web/console.js web/passkey.js web/console.css web/icon.svg
var files embed.FS

// routes are the addresses of the console. What an address shows without a
// proof is public; nothing is asked of the broker for a file.
func (c *Console) routes() http.Handler {
	m := http.NewServeMux()
	m.HandleFunc("GET /{$}", c.shell)
	m.HandleFunc("GET /console.js", file("text/javascript; charset=utf-8", "web/console.js"))
	m.HandleFunc("GET /passkey.js", file("text/javascript; charset=utf-8", "web/passkey.js"))
	m.HandleFunc("GET /console.css", file("text/css; charset=utf-8", "web/console.css"))
	m.HandleFunc("GET /icon.svg", file("image/svg+xml", "web/icon.svg"))
	m.HandleFunc("GET /events", c.events)

	m.HandleFunc("GET /passkeys", c.passkeys)
	m.HandleFunc("GET /view/waiting", c.withAny(c.viewWaiting))
	m.HandleFunc("GET /view/card", c.withPage(c.viewCard))
	m.HandleFunc("GET /view/sessions", c.withPage(c.viewSessions))
	m.HandleFunc("GET /view/activity", c.withPage(c.viewActivity))
	m.HandleFunc("GET /view/operation", c.withPage(c.viewOperation))
	m.HandleFunc("GET /view/body", c.withPage(c.viewBody))
	m.HandleFunc("GET /view/access", c.withPage(c.viewAccess))
	m.HandleFunc("GET /view/review", c.withPage(c.viewReview))
	m.HandleFunc("GET /view/doctor", c.withPage(c.viewDoctor))

	m.HandleFunc("POST /open", c.open)
	m.HandleFunc("POST /close", c.closePage)
	m.HandleFunc("POST /decide", c.withPage(c.decide))
	m.HandleFunc("POST /clicks", c.withPage(c.openClicks))
	m.HandleFunc("POST /deny", c.withAny(c.deny))
	m.HandleFunc("POST /revoke", c.withAny(c.revoke))
	m.HandleFunc("POST /lock", c.withAny(c.lock))
	m.HandleFunc("POST /secret", c.withPage(c.setSecret))
	m.HandleFunc("POST /test", c.withPage(c.testAccess))
	m.HandleFunc("POST /challenge", c.challenge)
	m.HandleFunc("POST /passkey/begin", c.withPage(c.beginPasskey))
	m.HandleFunc("POST /passkey/add", c.withPage(c.addPasskey))
	m.HandleFunc("POST /passkey/remove", c.withPage(c.removePasskey))
	return m
}

func file(kind, name string) http.HandlerFunc {
	content, err := files.ReadFile(name)
	if err != nil {
		panic(err) // it is embedded
	}
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		w.Header().Set("Content-Length", strconv.Itoa(len(content)))
		w.Write(content)
	}
}

// shell is the empty page. It is the same for everybody.
func (c *Console) shell(w http.ResponseWriter, _ *http.Request) {
	st := c.Broker.Status()
	c.render(w, "page.html", map[string]any{"Home": c.TestHome, "Version": st.BrokerVersion})
}
