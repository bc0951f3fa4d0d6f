#!/usr/bin/env bash
# Each fuzz test for a while: scripts/fuzz.sh [DURATION] [PATTERN of "package name"]. Each begins with its seeds and with what earlier runs found (go env GOCACHE).
# An input that fails stays in the package's testdata/fuzz, where `go test` tries it again.
set -euo pipefail
cd "$(dirname "$0")/.."
duration="${1:-30s}" pattern="${2:-.}" failed=()
while IFS=: read -r file func; do
	package="./$(dirname "$file")" name="${func#func }"
	[[ "$package $name" =~ $pattern ]] || continue
	echo "== $package $name"
	go test "$package" -run '^$' -fuzz "^$name\$" -fuzztime "$duration" || failed+=("$package $name")
done < <(grep -roE --include='*_test.go' '^func Fuzz\w+' . | sort)
if [ ${#failed[@]} -gt 0 ]; then
	printf 'failed: %s\n' "${failed[@]}" >&2
	exit 1
fi
