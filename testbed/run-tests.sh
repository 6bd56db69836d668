#!/bin/bash
# Runs every test of the workspace; the last line is the sum over all test binaries:
#
#   N passed, N failed, N skipped
#
# and before it stands why each one failed, once more: the test itself may be an hour up.
#
# Everything runs optimised, which is what the tests in guests test, and builds once. Cargo does not
# build another package's binaries, or the plugin, by itself, so that is done before those tests.
# Fails if anything failed, be it a test, a build, or a test binary that ended early.
set -uo pipefail

log=$(mktemp)
trap 'rm -f "$log"' EXIT
status=0

run() {
    "$@" 2>&1 | tee -a "$log" || status=1
}

run cargo test --release --workspace --exclude pghot-testbed --exclude pghot-bench --no-fail-fast
# What is not compiled by default.
run cargo test --release -p pghot-sim --features parquet --lib -- parquet
run cargo build --release --workspace
run cargo test --release -p pghot-testbed -p pghot-bench --no-fail-fast

# Every Rust test binary ends with "test result: ok. 3 passed; 0 failed; 1 ignored; ...".
awk -v status="$status" '
    function print_line(line) { reasons = reasons substr(line, 1, 500) "\n" }
    /^test result: / {
        for (i = 2; i <= NF; i++) {
            if ($i == "passed;") passed += $(i - 1)
            if ($i == "failed;") failed += $(i - 1)
            if ($i == "ignored;") skipped += $(i - 1)
        }
    }
    /^test .* \.\.\. ignored/ { reasons = reasons "skipped: " substr($0, 6) "\n" }
    # A failure is told between "---- name ----" and an empty line or the next one; VM tests also tell
    # of their first attempt.
    /^---- .* ----$/ { why = 20 }
    /^$/ { why = 0 }
    / failed and is run once more, / { print_line($0) }
    why > 0 { why--; print_line($0) }
    END {
        if (status && !failed) print "no test failed, but a build or a test binary did: see above"
        printf "%s%d passed, %d failed, %d skipped\n", reasons, passed, failed, skipped
        exit status || failed
    }
' "$log"
