package test

import (
	"encoding/json"
	"os"
	"testing"
)

// TestDashboardBeginsWithNumbers: the first row of the dashboard is what one looks at first, as
// numbers; no panel lies over another one or has its id.
func TestDashboardBeginsWithNumbers(t *testing.T) {
	text, err := os.ReadFile("../dist/monitoring/grafana.json")
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Panels []struct {
			ID      int
			Type    string
			Title   string
			GridPos struct{ X, Y, W, H int }
		}
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	type place struct{ x, y int }
	taken, ids, numbers := map[place]string{}, map[int]string{}, 0
	for _, p := range d.Panels {
		at := p.GridPos
		if number := p.Type == "stat"; number != (at.Y == 0) {
			t.Errorf("panel %s is of type %s, in row %d", p.Title, p.Type, at.Y)
		} else if number {
			numbers++
		}
		if other := ids[p.ID]; other != "" {
			t.Errorf("panels %s and %s have the id %d", other, p.Title, p.ID)
		}
		ids[p.ID] = p.Title
		for x := at.X; x < at.X+at.W; x++ {
			for y := at.Y; y < at.Y+at.H; y++ {
				if other := taken[place{x, y}]; other != "" {
					t.Fatalf("panels %s and %s lie over each other", other, p.Title)
				}
				taken[place{x, y}] = p.Title
			}
		}
		if at.X+at.W > 24 {
			t.Errorf("panel %s is wider than the dashboard", p.Title)
		}
	}
	if numbers < 4 {
		t.Errorf("%d numbers are in the first row", numbers)
	}
}
