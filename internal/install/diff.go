package install

import (
	"fmt"
	"slices"
	"strings"
)

// around is how many unchanged lines a difference shows around changed ones.
const around = 3

// Difference is the change of the file as a unified difference, empty if there
// is none.
func (f *File) Difference() string {
	if !f.differs() {
		return ""
	}
	from, to := f.Path, f.Path
	if !f.Exists {
		from = "/dev/null"
	}
	if f.Remove {
		to = "/dev/null"
	}
	return fmt.Sprintf("--- %s\n+++ %s\n%s", from, to, unified(lines(f.Before), lines(f.After)))
}

// lines splits a text; a last line without its end is marked as diff(1) does.
func lines(text []byte) []string {
	all := strings.SplitAfter(string(text), "\n")
	if last := len(all) - 1; all[last] == "" {
		return all[:last]
	} else {
		all[last] += "\n\\ No newline at end of file\n"
	}
	return all
}

// edit is one line of a difference: ' ', '-' or '+'.
type edit struct {
	mark byte
	line string
}

// unified prints the difference of two texts. Edits of this package touch few
// lines, so the common begin and end are cut off before the rest is compared.
func unified(a, b []string) string {
	head := 0
	for head < len(a) && head < len(b) && a[head] == b[head] {
		head++
	}
	tail := 0
	for tail < len(a)-head && tail < len(b)-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	var all []edit
	for _, line := range a[:head] {
		all = append(all, edit{' ', line})
	}
	all = append(all, compare(a[head:len(a)-tail], b[head:len(b)-tail])...)
	for _, line := range a[len(a)-tail:] {
		all = append(all, edit{' ', line})
	}
	return hunks(all)
}

// compare finds a longest common subsequence of lines, unless the texts are too
// large for it.
func compare(a, b []string) []edit {
	var all []edit
	if len(a)*len(b) > 4<<20 {
		for _, line := range a {
			all = append(all, edit{'-', line})
		}
		for _, line := range b {
			all = append(all, edit{'+', line})
		}
		return all
	}
	common := make([][]int, len(a)+1) // of a[i:] and b[j:]
	for i := range common {
		common[i] = make([]int, len(b)+1)
	}
	for i, x := range slices.Backward(a) {
		for j, y := range slices.Backward(b) {
			if x == y {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			all = append(all, edit{' ', a[i]})
			i, j = i+1, j+1
		case j == len(b) || i < len(a) && common[i+1][j] >= common[i][j+1]:
			all = append(all, edit{'-', a[i]})
			i++
		default:
			all = append(all, edit{'+', b[j]})
			j++
		}
	}
	return all
}

// hunks prints the changed lines with those around them.
func hunks(all []edit) string {
	var out strings.Builder
	old, new := 1, 1
	for i := 0; i < len(all); {
		if !slices.ContainsFunc(all[i:min(i+around+1, len(all))], changed) {
			old, new, i = old+1, new+1, i+1
			continue
		}
		end := i
		for end < len(all) && slices.ContainsFunc(all[max(i, end-around):min(end+around+1, len(all))], changed) {
			end++
		}
		var body strings.Builder
		removed, added := 0, 0
		for _, e := range all[i:end] {
			body.WriteString(string(e.mark) + e.line)
			if e.mark != '+' {
				removed++
			}
			if e.mark != '-' {
				added++
			}
		}
		fmt.Fprintf(&out, "@@ -%d,%d +%d,%d @@\n%s", start(old, removed), removed, start(new, added), added, body.String())
		old, new, i = old+removed, new+added, end
	}
	return out.String()
}

func changed(e edit) bool { return e.mark != ' ' }

// start is the first line of a hunk; of an empty one the line before it.
func start(line, count int) int {
	if count == 0 {
		return line - 1
	}
	return line
}
