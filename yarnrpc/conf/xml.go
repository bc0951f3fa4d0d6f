package conf

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

const (
	maxIncludes = 16       // depth of xi:include
	maxFileSize = 32 << 20 // bytes
)

func (c *Configuration) readFile(name string) error {
	return c.read(name, 0)
}

func (c *Configuration) read(name string, depth int) error {
	f, err := os.Open(name)
	if err != nil {
		return fmt.Errorf("conf: read configuration: %w", err)
	}
	defer f.Close() //nolint:errcheck // only read
	if st, err := f.Stat(); err == nil && st.IsDir() {
		return fmt.Errorf("conf: read %s: is a directory", name)
	}
	err = parseXML(io.LimitReader(f, maxFileSize), func(key string, p property) {
		p.file = name
		c.set(key, p)
	}, func(href string) error {
		if depth >= maxIncludes {
			return fmt.Errorf("xi:include %q: more than %d levels", href, maxIncludes)
		}
		if !filepath.IsAbs(href) {
			href = filepath.Join(filepath.Dir(name), href)
		}
		return c.read(strings.TrimPrefix(href, "file://"), depth+1)
	})
	if err != nil {
		return fmt.Errorf("conf: read %s: %w", name, err)
	}
	return nil
}

type xmlProperty struct {
	NameAttr  string `xml:"name,attr"`
	ValueAttr string `xml:"value,attr"`
	FinalAttr string `xml:"final,attr"`
	Name      string `xml:"name"`
	Value     *struct {
		Text string `xml:",chardata"`
	} `xml:"value"`
	Final string `xml:"final"`
}

type xmlInclude struct {
	Href     string    `xml:"href,attr"`
	Fallback *struct{} `xml:"fallback"`
}

// parseXML reports each property of a configuration file in order.
//
// Source: hadoop-common Configuration.Parser: name and value as elements or attributes, nested configuration elements,
// xi:include with fallback; anything else is ignored.
func parseXML(r io.Reader, set func(key string, p property), include func(href string) error) error {
	d := xml.NewDecoder(r)
	d.Strict = true
	d.CharsetReader = charset
	depth := 0 // of configuration elements
	for {
		tok, err := d.Token()
		if errors.Is(err, io.EOF) {
			if depth != 0 {
				return errors.New("file ends inside <configuration>")
			}
			return nil
		}
		if err != nil {
			return err
		}
		switch t := tok.(type) {
		case xml.EndElement:
			depth--
		case xml.StartElement:
			switch {
			case t.Name.Local == "configuration":
				if depth++; depth > maxIncludes {
					return errors.New("too many nested <configuration> elements")
				}
			case depth == 0:
				return fmt.Errorf("root element is <%s>, want <configuration>", t.Name.Local)
			case t.Name.Local == "property":
				var p xmlProperty
				if err := d.DecodeElement(&p, &t); err != nil {
					return err
				}
				if err := report(p, d, set); err != nil {
					return err
				}
			case t.Name.Local == "include":
				var inc xmlInclude
				if err := d.DecodeElement(&inc, &t); err != nil {
					return err
				}
				err := include(inc.Href)
				switch {
				case err == nil, errors.Is(err, os.ErrNotExist) && inc.Fallback != nil:
				case errors.Is(err, os.ErrNotExist): // not wrapped: only a site file itself may be missing
					return fmt.Errorf("xi:include %q: no such file, and no <xi:fallback/>", inc.Href)
				default:
					return err
				}
			default:
				if err := d.Skip(); err != nil {
					return err
				}
			}
		}
	}
}

func report(p xmlProperty, d *xml.Decoder, set func(string, property)) error {
	key := strings.TrimSpace(p.Name)
	if key == "" {
		key = strings.TrimSpace(p.NameAttr)
	}
	if key == "" {
		line, _ := d.InputPos()
		return fmt.Errorf("line %d: <property> without <name>", line)
	}
	value := p.ValueAttr
	if p.Value != nil {
		value = p.Value.Text
	} else if p.ValueAttr == "" {
		return nil // no value at all: Hadoop ignores it
	}
	final := strings.TrimSpace(p.Final) == "true" || strings.TrimSpace(p.FinalAttr) == "true"
	set(key, property{value: value, final: final})
	return nil
}

// charset accepts the one encoding besides UTF-8 that is met in old files.
func charset(label string, in io.Reader) (io.Reader, error) {
	switch strings.ToLower(label) {
	case "utf-8", "utf8", "us-ascii":
		return in, nil
	case "iso-8859-1", "latin1":
		return &latin1{in: in}, nil
	}
	return nil, fmt.Errorf("encoding %q is not supported: save the file as UTF-8", label)
}

type latin1 struct {
	in   io.Reader
	buf  [512]byte
	rest []byte
}

func (l *latin1) Read(p []byte) (int, error) {
	if len(l.rest) == 0 {
		n, err := l.in.Read(l.buf[:])
		for _, b := range l.buf[:n] {
			l.rest = append(l.rest, string(rune(b))...)
		}
		if n == 0 {
			return 0, err
		}
	}
	n := copy(p, l.rest)
	l.rest = l.rest[n:]
	return n, nil
}
