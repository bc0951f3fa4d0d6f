#!/bin/sh
# Takes the savepoints of test/compat/testdata/REVISION by the build of a revision: scripts/compat.sh REVISION
# Each backend, each form, after about half of the input. A revision whose snapshots are kept once is not taken again.
set -eu
rev=$(git rev-parse --short "$1")
root=$(git rev-parse --show-toplevel)
work=$(mktemp -d)
out=$root/test/compat/testdata/$rev
trap 'git -C "$root" worktree remove --force "$work/src" 2>/dev/null || true; rm -rf "$work"' EXIT
git -C "$root" worktree add --detach "$work/src" "$rev"
mkdir -p "$work/src/test/compat" "$out"
cp -r "$root/test/compat/ledger" "$work/src/test/compat/"
cd "$work/src"
CGO_ENABLED=0 go build -o "$work/" ./cmd/client ./test/compat/ledger/cmd/ledger
port=${COMPAT_PORT:-28081}
for backend in hashmap pebble; do
	for form in canonical native; do
		"$work/client" run -t local -Drest.port="$port" -Dstate.backend.type=$backend -Dparallelism.default=2 -Dexecution.checkpointing.interval=1s \
			-Dexecution.checkpointing.dir="file://$work/chk" "$work/ledger" >"$work/log" 2>&1 &
		pid=$!
		until "$work/client" checkpoint -m "localhost:$port" >/dev/null 2>&1; do sleep 0.2; done
		sleep 4
		"$work/client" stop -m "localhost:$port" -type $form -p "file://$work/$backend-$form"
		wait $pid || { cat "$work/log"; exit 1; }
		rm -rf "${out:?}/$backend-$form"
		mv "$work/$backend-$form"/savepoint-* "$out/$backend-$form"
	done
done
du -sh "$out"/*
