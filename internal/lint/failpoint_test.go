package lint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// docs/failpoints.md lists the points of the code, and each of them is in one place: a fault run that arms a name knows where it strikes.
func TestFailpointsAreListed(t *testing.T) {
	text, err := os.ReadFile("../../docs/failpoints.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	withError := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z/-]+)` \\|.*\\|(.*)\\|$").FindAllStringSubmatch(string(text), -1) {
		if listed[m[1]] {
			t.Errorf("docs/failpoints.md lists %s twice", m[1])
		}
		listed[m[1]], withError[m[1]] = true, strings.TrimSpace(m[2]) != ""
	}
	if len(listed) < 40 {
		t.Fatalf("docs/failpoints.md lists %d points; its table has another form", len(listed))
	}
	at := map[string]string{}
	for _, p := range packages(t) {
		for _, file := range p.GoFiles {
			for _, c := range failpoints(t, filepath.Join(p.Dir, file)) {
				switch {
				case c.name == "":
					t.Errorf("%s: a failpoint's name is a string literal", c.where)
				case at[c.name] != "":
					t.Errorf("%s: the failpoint %s is at %s already", c.where, c.name, at[c.name])
				case !listed[c.name]:
					t.Errorf("%s: the failpoint %s is not in docs/failpoints.md", c.where, c.name)
				case withError[c.name] != (c.function == "Error"):
					t.Errorf("%s: the failpoint %s is failpoint.%s, the last column of docs/failpoints.md says otherwise", c.where, c.name, c.function)
				}
				at[c.name] = c.where
			}
		}
	}
	for name := range listed {
		if at[name] == "" {
			t.Errorf("docs/failpoints.md lists %s, which is nowhere in the code", name)
		}
	}
}

type failpointCall struct{ name, function, where string }

// failpoints are the calls of failpoint.At and failpoint.Error in a file.
func failpoints(t *testing.T, file string) (all []failpointCall) {
	t.Helper()
	src, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(src), module+"internal/failpoint\"") {
		return nil
	}
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, file, src, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) != 1 {
			return true
		}
		sel, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := sel.X.(*ast.Ident); !ok || x.Name != "failpoint" || sel.Sel.Name != "At" && sel.Sel.Name != "Error" {
			return true
		}
		c := failpointCall{function: sel.Sel.Name, where: fset.Position(call.Pos()).String()}
		if lit, ok := call.Args[0].(*ast.BasicLit); ok {
			c.name, _ = strconv.Unquote(lit.Value)
		}
		all = append(all, c)
		return true
	})
	return all
}
