package rest

import (
	"net/http"
	"slices"
	"strings"

	"github.com/thalweg/thalweg/runtime/jobmaster"
)

// exceptions is the history of failures, newest first, in Flink's form: an entry for each that ended an attempt, with those that came with it.
// Query: maxExceptions (20), failureLabelFilter, "key:value" or several with commas: entries that have all of these labels.
// Source: Flink 2.x JobExceptionsInfoWithHistory, FailureLabelFilterParameter.
func exceptions(r *http.Request, d *jobmaster.Details) (any, error) {
	limit, err := intParam(r, "maxExceptions", 20, 1, 1000)
	if err != nil {
		return nil, err
	}
	wanted, err := labelFilter(r)
	if err != nil {
		return nil, err
	}
	entries, concurrent, truncated := []object{}, []object{}, false
	for i := range d.History {
		f := &d.History[i]
		if !f.Root {
			concurrent = append(concurrent, exception(d, f))
			continue
		}
		if !has(f.Labels, wanted) {
			concurrent = []object{}
			continue
		}
		if len(entries) == limit {
			truncated = true
			break
		}
		o := exception(d, f)
		slices.Reverse(concurrent)
		o["concurrentExceptions"] = concurrent
		entries, concurrent = append(entries, o), []object{}
	}
	return object{"exceptionHistory": object{"entries": entries, "truncated": truncated}}, nil
}

func exception(d *jobmaster.Details, f *jobmaster.Recorded) object {
	stack := f.Message
	if f.Detail != "" {
		stack += "\n" + f.Detail
	}
	kind := f.Kind
	if kind == "" {
		kind = "error"
	}
	o := object{"exceptionName": kind, "stacktrace": d.Config.Redact(stack), "timestamp": f.At.UnixMilli(), "failureLabels": f.Labels, "message": d.Config.Redact(f.Message)}
	for _, v := range [...]struct{ key, value string }{{"taskName", f.Task}, {"operator", f.Operator}, {"taskManagerId", f.TaskManager}, {"endpoint", f.Endpoint}} {
		if v.value != "" {
			o[v.key] = v.value
		}
	}
	return o
}

func has(labels, wanted map[string]string) bool {
	for k, v := range wanted {
		if labels[k] != v {
			return false
		}
	}
	return true
}

// labelFilter reads failureLabelFilter.
func labelFilter(r *http.Request) (map[string]string, error) {
	wanted := map[string]string{}
	for _, list := range r.URL.Query()["failureLabelFilter"] {
		for pair := range strings.SplitSeq(list, ",") {
			key, value, ok := strings.Cut(pair, ":")
			if !ok || key == "" || value == "" || strings.Contains(value, ":") {
				return nil, bad("Query parameter failureLabelFilter = %q: want key:value, such as %s:user.", clip(list), jobmaster.LabelType)
			}
			wanted[key] = value
		}
	}
	return wanted, nil
}
