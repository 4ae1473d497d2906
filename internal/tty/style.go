package tty

// Style is how a text looks where colour is wanted (ECMA-48 select graphic rendition).
type Style string

// The styles in use. Plain is the zero value.
const (
	Plain  Style = ""
	Bold   Style = "1"
	Dim    Style = "2"
	Red    Style = "31"
	Green  Style = "32"
	Yellow Style = "33"
)

// Apply returns text dressed in the style when color is true, and text itself otherwise.
func (s Style) Apply(color bool, text string) string {
	if !color || s == Plain || text == "" {
		return text
	}
	return "\x1b[" + string(s) + "m" + text + "\x1b[0m"
}
