package hdfs

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/thalweg/thalweg/fs/hdfs/hdfspb"
)

// repair lets the open block go on after cause: with the nodes that are left when there are any, else by sending it again to others when
// it is small. It returns closed when the block is complete with that, and cause when nothing can be done.
func (w *writer) repair(cause error) (closed bool, err error) {
	broken := w.block
	w.block = nil
	broken.close()
	if w.ctx.Err() != nil {
		return false, w.ctx.Err()
	}
	w.f.log.Warn().Str("path", w.path).Err(cause).Int("nodes", len(broken.located.GetLocs())).Msg("data node lost while a block was written")
	ctx, cancel := w.f.budget(w.ctx)
	defer cancel()
	if len(broken.located.GetLocs()) > 1 {
		closed, err = w.goOn(ctx, broken)
		if err == nil {
			return closed, nil
		}
		cause = errors.Join(cause, err)
	}
	if w.tooMuch {
		return false, &datanodeError{addr: w.f.datanodeAddr(broken.located.GetLocs()[0]), err: fmt.Errorf(
			"%w (no other node has the block, and it is larger than the %d MiB that are kept: write the file again)", flat(cause), keepLimit>>20)}
	}
	return false, w.startOver(ctx, broken, cause)
}

// flat makes joined errors one line, and keeps what they are.
func flat(err error) error {
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) {
		return err
	}
	var out error
	for _, e := range joined.Unwrap() {
		if out == nil {
			out = e
		} else {
			out = fmt.Errorf("%w; then %w", out, e)
		}
	}
	return out
}

// startOver gives the block back and sends what is kept of it as another one.
func (w *writer) startOver(ctx context.Context, broken *blockWriter, cause error) error {
	for {
		w.abandon(ctx, broken.located, broken.bad)
		if err := w.open(ctx); err != nil {
			return flat(errors.Join(cause, err))
		}
		err := w.resend()
		if err == nil {
			return nil
		}
		broken = w.block
		w.block = nil
		broken.close()
		if ctx.Err() != nil {
			return flat(errors.Join(cause, err))
		}
	}
}

func (w *writer) resend() error {
	for rest := w.kept; len(rest) > 0; {
		n := min(len(rest), packetData)
		if err := w.block.send(rest[:n], false); err != nil {
			return err
		}
		rest = rest[n:]
	}
	return nil
}

// goOn continues a block with the nodes of its pipeline that are left. The NameNode gives the block a new generation stamp, so that what
// the lost node has is not taken for the block when it comes back; missing replicas are made up for by the NameNode after the file is closed.
//
// Source: hadoop-hdfs-client DataStreamer.setupPipelineForAppendOrRecovery.
func (w *writer) goOn(ctx context.Context, broken *blockWriter) (closed bool, err error) {
	for len(broken.located.GetLocs()) > 1 {
		next, err := w.newPipeline(ctx, broken)
		if err != nil {
			return false, err
		}
		b, bad, err := w.f.openBlockWriter(w.ctx, next, w.blockSize)
		if err != nil {
			if ctx.Err() != nil {
				return false, err
			}
			broken.located, broken.bad = next.located, bad // one fewer
			continue
		}
		if err := w.updatePipeline(ctx, b, next); err != nil {
			b.close()
			return false, err
		}
		w.block = b
		if next.stage == hdfspb.OpWriteBlockProto_PIPELINE_CLOSE_RECOVERY {
			b.close() // the nodes have closed the block with their answer
			return true, nil
		}
		rest := broken.unacked()
		for i, p := range rest {
			if p.n == 0 { // the final packet; finish sends another one
				continue
			}
			if err = b.send(p.data, false); err != nil {
				// Those sent are in flight there, now unacknowledged twice over; the ones behind are not.
				b.flight = append(b.flight, rest[i+1:]...)
				for _, q := range rest[i+1:] {
					b.offset += int64(q.n)
				}
				break
			}
			recycle(p)
		}
		if err == nil {
			return false, nil
		}
		w.block = nil
		broken = b
	}
	return false, errors.New("no node of the pipeline is left")
}

// newPipeline takes the bad node out and asks for a new generation stamp.
func (w *writer) newPipeline(ctx context.Context, broken *blockWriter) (pipeline, error) {
	old := broken.located
	bad := max(broken.bad, 0)
	resp := &hdfspb.UpdateBlockForPipelineResponseProto{}
	req := &hdfspb.UpdateBlockForPipelineRequestProto{Block: old.GetB(), ClientName: proto.String(w.f.clientName)}
	if err := w.f.call(ctx, "updateBlockForPipeline", req, resp); err != nil {
		return pipeline{}, err
	}
	located := proto.Clone(old).(*hdfspb.LocatedBlockProto)
	located.BlockToken = resp.GetBlock().GetBlockToken()
	if n := len(located.Locs); len(located.StorageTypes) == n && len(located.StorageIDs) == n {
		located.StorageTypes, located.StorageIDs = slices.Delete(located.StorageTypes, bad, bad+1), slices.Delete(located.StorageIDs, bad, bad+1)
	}
	located.Locs = slices.Delete(located.Locs, bad, bad+1)
	p := pipeline{
		located: located, stage: hdfspb.OpWriteBlockProto_PIPELINE_SETUP_STREAMING_RECOVERY,
		newStamp: resp.GetBlock().GetB().GetGenerationStamp(), acked: broken.whole, sent: broken.offset,
	}
	if broken.allAcked() {
		p.stage = hdfspb.OpWriteBlockProto_PIPELINE_CLOSE_RECOVERY
	}
	return p, nil
}

// updatePipeline tells the NameNode which nodes have the block under its new generation stamp.
func (w *writer) updatePipeline(ctx context.Context, b *blockWriter, p pipeline) error {
	old := proto.Clone(p.located.GetB()).(*hdfspb.ExtendedBlockProto)
	renewed := proto.Clone(old).(*hdfspb.ExtendedBlockProto)
	renewed.GenerationStamp = proto.Uint64(p.newStamp)
	renewed.NumBytes = proto.Uint64(uint64(p.acked)) //nolint:gosec // positive
	req := &hdfspb.UpdatePipelineRequestProto{ClientName: proto.String(w.f.clientName), OldBlock: old, NewBlock: renewed, StorageIDs: p.located.GetStorageIDs()}
	for _, d := range p.located.GetLocs() {
		req.NewNodes = append(req.NewNodes, d.GetId())
	}
	if err := w.f.call(ctx, "updatePipeline", req, &hdfspb.UpdatePipelineResponseProto{}); err != nil {
		return err
	}
	b.located.B = renewed
	return nil
}
