package serde

import (
	"reflect"
	"unsafe"
)

// clone replaces everything that the value at p shares with other memory by copies. The texts of one value are copied into one
// block, so that a record of many strings costs one allocation.
func (pr *program) clone(p unsafe.Pointer) {
	if len(pr.cloneOps) == 0 {
		return
	}
	total := 0
	for i := range pr.cloneOps {
		o := &pr.cloneOps[i]
		switch o.kind {
		case opString:
			total += len(*(*string)(unsafe.Add(p, o.off)))
		case opBytes:
			total += len(*(*[]byte)(unsafe.Add(p, o.off)))
		}
	}
	var block []byte
	if total > 0 {
		block = make([]byte, total)
	}
	for i := range pr.cloneOps {
		o := &pr.cloneOps[i]
		q := unsafe.Add(p, o.off)
		switch o.kind {
		case opString:
			s := (*string)(q)
			n := copy(block, *s)
			*s = viewString(block[:n])
			block = block[n:]
		case opBytes:
			b := (*[]byte)(q)
			if *b == nil {
				continue
			}
			if len(*b) == 0 {
				*b = []byte{}
				continue
			}
			n := copy(block, *b)
			*b = block[:n:n]
			block = block[n:]
		default:
			o.clone(q)
		}
	}
}

func (o *op) clone(q unsafe.Pointer) {
	switch o.kind {
	case opSlice:
		h := (*sliceHeader)(q)
		if h.data == nil {
			return
		}
		e := o.newElems(h.len)
		o.copyElems(e, h.data, h.len)
		*h = sliceHeader{e, h.len, h.len}
		o.cloneElems(e, h.len)
	case opArray:
		o.cloneElems(q, int(o.n))
	case opPointer:
		old := *(*unsafe.Pointer)(q)
		if old == nil {
			return
		}
		e := o.newElems(1)
		o.copyElems(e, old, 1)
		*(*unsafe.Pointer)(q) = e
		o.sub.clone(e)
	case opMap:
		o.cloneMap(q)
	case opCustom:
		o.custom.cloneAt(q)
	}
}

// copyElems copies n elements bytewise or, where they hold pointers, through reflection (write barriers).
func (o *op) copyElems(dst, src unsafe.Pointer, n int) {
	switch {
	case n == 0 || o.size == 0:
	case o.plain:
		copy(view(dst, uintptr(n)*o.size), view(src, uintptr(n)*o.size))
	case o.typ.Kind() == reflect.String:
		copy(unsafe.Slice((*string)(dst), n), unsafe.Slice((*string)(src), n))
	default:
		for i := range uintptr(n) {
			reflect.NewAt(o.typ, unsafe.Add(dst, i*o.size)).Elem().Set(reflect.NewAt(o.typ, unsafe.Add(src, i*o.size)).Elem())
		}
	}
}

func (o *op) cloneElems(e unsafe.Pointer, n int) {
	if len(o.sub.cloneOps) == 0 {
		return
	}
	for i := range uintptr(n) {
		o.sub.clone(unsafe.Add(e, i*o.size))
	}
}

func (o *op) cloneMap(q unsafe.Pointer) {
	if *(*unsafe.Pointer)(q) == nil {
		return
	}
	old := o.heapMap(q)
	m := reflect.MakeMapWithSize(o.typ, old.Len())
	k, v := reflect.New(o.typ.Key()), reflect.New(o.typ.Elem())
	for it := old.MapRange(); it.Next(); {
		k.Elem().SetIterKey(it)
		v.Elem().SetIterValue(it)
		o.key.clone(k.UnsafePointer())
		o.sub.clone(v.UnsafePointer())
		m.SetMapIndex(k.Elem(), v.Elem())
	}
	*(*unsafe.Pointer)(q) = m.UnsafePointer()
}
