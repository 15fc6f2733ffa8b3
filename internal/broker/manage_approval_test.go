package broker

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/session"
	"github.com/yett-broker/yett/internal/wire"
)

// However many and large the cards of agents are, a person can list them, the
// oldest with all that is needed to decide it.
func TestP01_ALongQueueCanBeListed(t *testing.T) {
	clock := session.SystemClock{}
	b := &Broker{Config: Config{Clock: clock}, queue: approval.NewQueue("b_test", clock)}
	ch := newOperator(b, nil)
	var oldest *approval.Item
	for i := range 2500 {
		p := approval.Proposal{Caller: fmt.Sprint("p", i/100), SessionID: "s_1", Equal: fmt.Sprint(i),
			Granting: approval.Granting{Capabilities: []approval.Capability{{Name: strings.Repeat("c", 400)}}}}
		if i < 20 {
			p.Request = &approval.Request{Body: strings.Repeat("\x01", 16<<10)}
		}
		item, err := b.queue.File(p)
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			oldest = item
		}
	}
	for _, reading := range []bool{false, true} {
		if reading {
			ch.openReading()
		}
		r, fail := ch.listCards(wire.ApprovalList{})
		if fail != nil {
			t.Fatal(fail)
		}
		raw, err := json.Marshal(r)
		if err != nil || len(raw) > wire.MaxFrame-1024 {
			t.Fatalf("the list has %d bytes, %v", len(raw), err)
		}
		items := r.(wire.List[wire.Approval]).Items
		if items[0].ApprovalID != oldest.ID() || (items[0].CardDigest == oldest.Digest) != reading {
			t.Errorf("the oldest of %d is %+v", len(items), items[0])
		}
		named := map[string]bool{}
		for offset, more := 0, 1; more > 0; {
			r, _ := ch.listCards(wire.ApprovalList{Offset: offset})
			l := r.(wire.List[wire.Approval])
			for _, a := range l.Items {
				named[a.ApprovalID] = true
				if (a.SessionID == "s_1") != reading || a.Card == nil != (a.CardDigest == "") {
					t.Fatalf("a line of the list: %+v", a)
				}
			}
			for _, id := range l.Rest {
				named[id] = true
			}
			offset, more = offset+len(l.Items)+len(l.Rest), l.More
		}
		if len(named) != 2500 {
			t.Errorf("%d of 2500 cards are named", len(named))
		}
		last := b.queue.List()[2499]
		r, _ = ch.listCards(wire.ApprovalList{ApprovalID: last.ID()})
		if one := r.(wire.List[wire.Approval]).Items; len(one) != 1 || (one[0].CardDigest == last.Digest) != reading {
			t.Errorf("the last by its id: %+v", one)
		}
	}
}
