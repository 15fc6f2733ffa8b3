package console

import "time"

// The chart: how many actions there were over the last day, and how many of them
// were refused or asked for.
const (
	chartBars = 48
	chartStep = 30 * time.Minute
)

// chart is drawn as SVG by its template, in a box of 480 by 56.
type chart struct {
	Bars  []bar
	Total int
	Most  int
	From  time.Time
}

type bar struct {
	X, Done, DoneY, Not, NotY float64
	At                        time.Time
	Actions, Refused          int
}

func chartOf(rows []row) chart {
	end := time.Now().Truncate(chartStep).Add(chartStep)
	c := chart{From: end.Add(-chartBars * chartStep), Bars: make([]bar, chartBars)}
	for i := range c.Bars {
		c.Bars[i].At = c.From.Add(time.Duration(i) * chartStep)
	}
	for _, r := range rows {
		i := int(r.At.Sub(c.From) / chartStep)
		if i < 0 || i >= chartBars || r.At.Before(c.From) {
			continue
		}
		switch {
		case r.Kind == "intent":
			c.Bars[i].Actions++
			c.Total++
		case groupOf(r.Kind) == "refusals":
			c.Bars[i].Refused++
		}
	}
	for _, b := range c.Bars {
		c.Most = max(c.Most, b.Actions+b.Refused)
	}
	const height, width = 52.0, 480.0 / chartBars
	for i := range c.Bars {
		b := &c.Bars[i]
		b.X = float64(i) * width
		if c.Most > 0 {
			b.Done = height * float64(b.Actions) / float64(c.Most)
			b.Not = height * float64(b.Refused) / float64(c.Most)
		}
		b.DoneY = height - b.Done
		b.NotY = b.DoneY - b.Not
	}
	return c
}
