package console

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/yett-broker/yett/internal/wire"
)

func (c *Console) viewAccess(w http.ResponseWriter, r *http.Request, o *opened) {
	if !reading(w, o) {
		return
	}
	access, fail := ask[wire.AccessListResult](o.page, wire.MethodAccessShow, wire.Empty{})
	var secrets wire.List[wire.Secret]
	if fail == nil {
		secrets, fail = ask[wire.List[wire.Secret]](o.page, wire.MethodSecretList, wire.Empty{})
	}
	var keys wire.List[wire.Passkey]
	if fail == nil {
		keys, fail = ask[wire.List[wire.Passkey]](o.page, wire.MethodPasskeyList, wire.Empty{})
	}
	if fail != nil {
		refuse(w, fail)
		return
	}
	c.render(w, "access.html", map[string]any{"Capabilities": access.Capabilities, "Secrets": secrets.Items, "Passkeys": keys.Items})
}

// lookingTime bounds what a view asks of the whole system.
const lookingTime = 20 * time.Second

func (c *Console) viewReview(w http.ResponseWriter, r *http.Request, o *opened) {
	if !reading(w, o) {
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), lookingTime)
	defer cancel()
	review, err := c.Review(ctx, func(method string, request, result any) error {
		raw, err := json.Marshal(request)
		if err != nil {
			return err
		}
		answer, fail := o.page.Ask(method, wire.Managed{Request: raw})
		if fail != nil {
			return fail
		}
		if raw, err = json.Marshal(answer); err != nil {
			return err
		}
		return json.Unmarshal(raw, result)
	})
	if err != nil {
		c.Log.Error("making the review", "error", err)
		refuse(w, wire.Errorf(wire.CodeInternal, "The review could not be made."))
		return
	}
	c.render(w, "review.html", review)
}

func (c *Console) viewDoctor(w http.ResponseWriter, r *http.Request, o *opened) {
	if !reading(w, o) {
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), lookingTime)
	defer cancel()
	checks := c.Doctor(ctx)
	counts := map[string]int{}
	for _, k := range checks {
		counts[k.Level]++
	}
	c.render(w, "doctor.html", map[string]any{"Checks": checks, "OK": counts["ok"], "Note": counts["note"], "Problem": counts["problem"]})
}
