package serde

// Schema is the stored description of a Codec's encoding. Kind is one of bool, int8..int64, uint8..uint64, float32, float64, string,
// bytes, time, slice, array, map, pointer, struct, custom. Encoded with state so that versions of a type can be compared.
type Schema struct {
	Kind   string        `json:"kind"`
	Name   string        `json:"name,omitempty"`   // Go type name of structs and custom codecs
	Fields []SchemaField `json:"fields,omitempty"` // structs, in encoding order
	Elem   *Schema       `json:"elem,omitempty"`   // slice, array, map value, pointer
	Key    *Schema       `json:"key,omitempty"`    // map key
	Len    int           `json:"len,omitempty"`    // array
}

// SchemaField is one field of a struct.
type SchemaField struct {
	Name string `json:"name"`
	Type Schema `json:"type"`
	// Aliases are the names that the field had in earlier versions of its type (see Tag). They are the present type's, and not stored.
	Aliases []string `json:"-"`
}
