#!/bin/bash
# Runs tests of the workspace; the last line is the sum over all test binaries:
#
#   N passed, N failed, N skipped
#
# and right before it stands why each one failed, once more: the test itself may be an hour up, and
# of a long log only the end may be kept.
#
#   testbed/run-tests.sh           those that need no guest, and those of `make test` in guests
#   testbed/run-tests.sh unit      those that need no guest
#   testbed/run-tests.sh KERNEL    those in guests, on one kernel of kernels.toml
#
# With PGHOT_LONG=1 all tests run on every kernel, and no run is cut short when it is decided.
#
# Everything runs optimised, which is what the tests in guests test, and is built once: the same
# packages are named each time, because cargo builds a package anew when others ask for other
# features. Cargo does not build another package's binaries, or the plugin, by itself, so that is
# done before the tests in guests. Fails if anything failed, be it a test, a build, or a test binary
# that ended early.
set -uo pipefail

part=${1:-all}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
status=0

run() {
    "$@" 2>&1 | tee -a "$log" || status=1
}

tests() {
    run cargo test --release --workspace --no-fail-fast "$@"
}

# Binaries of tests in guests begin with vm, and others must not.
unit() {
    tests --lib --bins --test '[!v]*'
    tests --doc
}

case $part in
all)
    unit
    run cargo build --release --workspace
    tests --test 'vm*'
    ;;
unit) unit ;;
*)
    run cargo build --release --workspace
    tests --test vm -- "$part::"
    ;;
esac

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
    # A failure is told between "---- name ----" and an empty line or the next one; VM tests also
    # tell of their first attempt, and the ledger of earlier ones.
    /^---- .* ----$/ { why = 20 }
    /^$/ { why = 0 }
    / failed and is run once more, / { print_line($0) }
    /^ledger: / { ledger = ledger $0 "\n" }
    why > 0 { why--; print_line($0) }
    END {
        if (status && !failed) print "no test failed, but a build or a test binary did: see above"
        printf "%s%s", ledger, reasons
        printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped
        exit status || failed
    }
' "$log"
