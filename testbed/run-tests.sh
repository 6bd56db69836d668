#!/bin/bash
# Runs every test of the workspace; the last line is the sum over all test binaries:
#
#   N passed, N failed, N skipped
#
# Everything runs optimised, which is what the tests in guests test, and builds once. Cargo does not
# build another package's binaries by itself, so that is done before those tests. Fails if anything
# failed, be it a test, a build, or a test binary that ended early.
set -uo pipefail

log=$(mktemp)
trap 'rm -f "$log"' EXIT
status=0

run() {
    "$@" 2>&1 | tee -a "$log" || status=1
}

run cargo test --release --workspace --exclude pghot-testbed --no-fail-fast
run cargo build --release --workspace --bins
run cargo test --release -p pghot-testbed --no-fail-fast

# Every Rust test binary ends with "test result: ok. 3 passed; 0 failed; 1 ignored; ...".
awk -v status="$status" '
    /^test result: / {
        for (i = 2; i <= NF; i++) {
            if ($i == "passed;") passed += $(i - 1)
            if ($i == "failed;") failed += $(i - 1)
            if ($i == "ignored;") skipped += $(i - 1)
        }
    }
    /^test .* \.\.\. ignored/ { reasons = reasons "skipped: " substr($0, 6) "\n" }
    END {
        if (status && !failed) print "no test failed, but a build or a test binary did: see above"
        printf "%s%d passed, %d failed, %d skipped\n", reasons, passed, failed, skipped
        exit status || failed
    }
' "$log"
