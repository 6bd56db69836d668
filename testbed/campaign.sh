#!/bin/bash
# One part of a campaign: the same thing at many random moments. Stores what came of it as a line of
# docs/data/campaigns.tsv, of which docs/campaigns.md shows the sums; a part that fails stores
# nothing and ends with its error. Each part goes on where the last one stopped, with other random
# numbers, so a campaign can be run in as many parts as there are nights.
#
#   testbed/campaign.sh kills KERNEL N     kills of the daemon
#   testbed/campaign.sh plugs KERNEL N     times that the lower tier's memory goes and comes back
#   testbed/campaign.sh soak KERNEL S      seconds of churn
#   testbed/campaign.sh chaos N            modelled machines on which much goes wrong
#   testbed/campaign.sh harm N             modelled machines on which pghot may do harm
#   testbed/campaign.sh fuzz N [TARGET...] inputs for each parser, or for those named
#
# Do nothing else on the host meanwhile: kills are timed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
data=docs/data/campaigns.tsv
harm=docs/data/harm.tsv

usage() {
    sed -n 's/^#   \(testbed.*\)/\1/p' testbed/campaign.sh >&2
    exit 2
}

# How often it was done, and where.
done_so_far() {
    awk -F '\t' -v campaign="$1" -v on="$2" \
        '$3 == campaign && $4 == on { sum += $5 } END { printf "%d", sum }' "$data"
}

store() { # CAMPAIGN ON TIMES FOUND
    printf '%s\t%s\t%s\t%s\t%s\t%s\n' "$(date -u +%F)" "$commit" "$@" >>"$data"
    tail -n 1 "$data"
}

failed() { # LOG
    echo "the part failed, and nothing is stored; what it said is in $1" >&2
    exit 1
}

# Runs a test that says what it did: "campaign: TIMES FOUND".
tested() { # CAMPAIGN ON TIMES CARGO-TEST-ARGUMENTS...
    local campaign=$1 on=$2 log said
    log=$(mktemp)
    PGHOT_LONG=$3 PGHOT_SEED=$(done_so_far "$campaign" "$on") \
        cargo test --release "${@:4}" 2>&1 | tee "$log" || failed "$log"
    said=$(sed -n 's/^campaign: //p' "$log" | tail -n 1)
    # A test that fails is tried once more. That it did is part of what was found.
    ! grep -q ' failed and is run once more, ' "$log" || said+=' second_attempts=1'
    rm "$log"
    [ -n "$said" ] || { echo "the test did not say what it did" >&2 && exit 1; }
    store "$campaign" "$on" "${said%% *}" "${said#* }"
}

in_guest() { # CAMPAIGN TEST KERNEL TIMES
    cargo build --release --workspace
    tested "$1" "$3" "$4" -p pghot-testbed --test vm -- "$3::tiered3::$2"
}

case $#:${1-} in
3:kills | 3:plugs | 3:soak | 2:chaos | 2:harm | [2-9]:fuzz) ;;
*) usage ;;
esac
# Parts that were stored before this one are no change of the code.
stored=(":!$data" ":!$harm" ':!docs/campaigns.md' ':!docs/images/harm.svg')
if ! git diff --quiet HEAD -- . "${stored[@]}"; then
    echo "commit what has changed first: what is stored names the commit" >&2
    exit 1
fi
commit=$(git rev-parse --short HEAD)
case $1 in
kills) in_guest kills killed_at_any_moment "$2" "$3" ;;
plugs) in_guest plugs memory_comes_and_goes "$2" "$3" ;;
soak) in_guest soak stress "$2" "$3" ;;
chaos)
    tested chaos model "$2" -p pghot-sim --test chaos the_engine_keeps -- --nocapture
    ;;
harm)
    # One part after the other; those of an older policy are thrown away by hand.
    cargo build --release -p pghot-cli
    target/release/pghot sim harm "$(wc -l <"$harm")" --runs "$2" |
        awk -F '\t' -v commit="$commit" \
            'NF == 6 && $1 ~ /^[0-9]+$/ { print commit "\t" $0 }' >>"$harm"
    PGHOT_BLESS=1 cargo test --release -p pghot-testbed --test harm
    ;;
fuzz)
    # hint_message     12500000 runs,   512 edges,  200 s
    fuzz/run "${@:2}" | while read -r target runs _ edges _ seconds _; do
        store fuzz "$target" "$runs" "most_edges=$edges seconds=$seconds"
    done
    ;;
esac
