package bridge

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

func parsed(t *testing.T, folder string) (files []*ast.File) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	return files
}

// named is the name of a type, perhaps a pointer to it or one with type arguments.
func named(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return named(e.X)
	case *ast.IndexExpr:
		return named(e.X)
	case *ast.IndexListExpr:
		return named(e.X)
	case *ast.SelectorExpr:
		if x, ok := e.X.(*ast.Ident); ok {
			return x.Name + "." + e.Sel.Name
		}
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// go doc shows no methods of an alias: its comment names them.
func TestAliasesNameTheirMethods(t *testing.T) {
	methods := map[string][]string{} // of types of package operator
	for _, f := range parsed(t, "../../../runtime/operator") {
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv != nil && d.Name.IsExported() {
					of := named(d.Recv.List[0].Type)
					methods[of] = append(methods[of], d.Name.Name)
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					if s, ok := s.(*ast.TypeSpec); ok {
						if i, ok := s.Type.(*ast.InterfaceType); ok {
							for _, m := range i.Methods.List {
								for _, n := range m.Names {
									if n.IsExported() {
										methods[s.Name.Name] = append(methods[s.Name.Name], n.Name)
									}
								}
							}
						}
					}
				}
			}
		}
	}
	found := 0
	for _, f := range parsed(t, "../..") {
		for _, d := range f.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, s := range g.Specs {
				s, ok := s.(*ast.TypeSpec)
				if !ok || !s.Assign.IsValid() {
					continue
				}
				of, ok := strings.CutPrefix(named(s.Type), "operator.")
				if !ok {
					continue
				}
				found++
				text := g.Doc.Text() + s.Doc.Text()
				for _, m := range methods[of] {
					if !strings.Contains(text, m) && m != "Check" && !strings.Contains(text, "all methods of") {
						t.Errorf("the comment of stream.%s does not name %s", s.Name.Name, m)
					}
				}
			}
		}
	}
	if found < 40 {
		t.Errorf("%d aliases", found)
	}
}
