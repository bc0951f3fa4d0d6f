package rpc_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/thalweg/thalweg/runtime/rpc/pb"
)

// TestTextThatIsNotUTF8Arrives: what user code says goes through whatever bytes it has, and text that is UTF-8 goes through unchanged.
func TestTextThatIsNotUTF8Arrives(t *testing.T) {
	each(t, func(t *testing.T, p pair) {
		if strings.HasSuffix(t.Name(), "/pipe") {
			return // it passes messages, and copies nothing
		}
		rapid.Check(t, func(rt *rapid.T) {
			text := func(name string) string { return string(rapid.SliceOf(rapid.Byte()).Draw(rt, name)) }
			in := &pb.TaskManagerUp{Msg: &pb.TaskManagerUp_Worker{Worker: &pb.WorkerEnvelopeUp{JobId: "0a", Up: &pb.WorkerUp{Msg: &pb.WorkerUp_TaskState{TaskState: &pb.TaskStateChanged{
				ExecutionId: text("id"), Failure: &pb.Failure{Message: text("message"), Detail: text("detail")}}}}}}}
			before := proto.Clone(in)
			if err := p.low.Send(in); err != nil {
				rt.Fatal(err)
			}
			out, err := p.high.Recv()
			if err != nil {
				rt.Fatal(err)
			}
			if !proto.Equal(in, before) {
				rt.Fatal("the message was changed")
			}
			f, want := out.GetWorker().GetUp().GetTaskState().GetFailure(), in.GetWorker().GetUp().GetTaskState().GetFailure()
			for _, p := range [][2]string{{f.GetMessage(), want.GetMessage()}, {f.GetDetail(), want.GetDetail()}} {
				if p[0] != strings.ToValidUTF8(p[1], "\uFFFD") || !utf8.ValidString(p[0]) {
					rt.Fatalf("%q arrived as %q", p[1], p[0])
				}
			}
		})
	})
}
