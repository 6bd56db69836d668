#!/bin/bash
# Puts in place what building and testing pghot needs: host packages and stock kernel images.
#
#   testbed/setup.sh             install what is missing; does nothing, quickly, when all is there
#   testbed/setup.sh --refresh   also fetch the newest build of every kernel in kernels.toml
#
# Kernels are unpacked into $PGHOT_CACHE (default: ~/.cache/pghot) and never installed.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${PGHOT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/pghot}
work= # the folder of the fetch under way
host_packages=(qemu-system-x86 clang libelf-dev zlib1g-dev pkg-config make gcc libc6-dev
    attr e2fsprogs mount)

say() { echo "setup: $*" >&2; }
die() {
    say "$*"
    exit 1
}

# --- Host packages -------------------------------------------------------------------------------

# Prints those of its arguments that are not installed.
missing_packages() {
    local package
    for package in "$@"; do
        [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) == installed ]] ||
            echo "$package"
    done
}

install_host_packages() {
    local missing as_root=()
    mapfile -t missing < <(missing_packages "${host_packages[@]}")
    ((${#missing[@]})) || return 0
    if ((EUID != 0)); then
        command -v sudo >/dev/null || die "not root and no sudo; please install: ${missing[*]}"
        say "using sudo for one thing: to install these packages with apt: ${missing[*]}"
        as_root=(sudo)
    fi
    say "installing ${missing[*]}"
    "${as_root[@]}" apt-get update -qq
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null ||
        die "apt could not install: ${missing[*]}"
}

check_rust() {
    if ! { cargo fmt --version && cargo clippy --version; } >/dev/null 2>&1; then
        die "cargo with rustfmt and clippy is needed; please install a Rust toolchain"
    fi
}

# --- Kernel images -------------------------------------------------------------------------------

# Prints "name suite package" for each entry of kernels.toml.
kernel_table() {
    awk -F'"' '
        /^\[\[kernel\]\]/ { name = suite = "" }
        /^name/ { name = $2 }
        /^suite/ { suite = $2 }
        /^package/ { print name, suite, $2 }
    ' "$here/kernels.toml"
}

# Prints "options|uri" of the Debian archive this host already uses, so that its mirror and its
# keyring serve us too. Reads both formats of apt's source files; the security archive, whose path
# differs, does not match.
host_archive() {
    local files=()
    shopt -s nullglob
    files=(/etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources)
    shopt -u nullglob
    cat -s "${files[@]}" 2>/dev/null | awk '
        function is_debian(uri) { return uri ~ /\/debian(\.list)?\/?$/ }
        function found(options, uri) { print options "|" uri; done = 1; exit }
        function stanza() { if (uri != "") found(key == "" ? "" : "[signed-by=" key "]", uri) }

        /^deb[ \t]/ {                                   # deb [options] uri suite component...
            options = ""
            if (match($0, /\[[^]]*\]/)) {
                options = substr($0, RSTART, RLENGTH)
                $0 = substr($0, 1, RSTART - 1) substr($0, RSTART + RLENGTH)
            }
            if (is_debian($2)) found(options, $2)
        }
        /^Types:/ { stanza(); uri = key = "" }          # deb822: a stanza starts with Types here
        /^URIs:/ { for (i = 2; i <= NF; i++) if (uri == "" && is_debian($i)) uri = $i }
        /^Signed-By:[ \t]+\// { key = $2 }
        END { if (!done) stanza() }
    '
}

# apt with lists, sources and cache of our own: nothing on the host changes.
private_apt() {
    local tool=$1
    shift
    "$tool" -q -o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts=/dev/null \
        -o Dir::State::lists="$work/lists" -o Dir::Cache="$work/cache" \
        -o APT::Sandbox::User=root -o APT::Update::Error-Mode=any \
        -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false \
        -o Acquire::Languages=none -o Acquire::Retries=2 "$@"
}

# Prints the kernel release (6.12.95+deb12-cloud-amd64) the metapackage stands for now.
newest_release() {
    private_apt apt-cache show --no-all-versions "$1" |
        sed -n 's/^Depends:.*linux-image-\([0-9][^ ,]*\).*/\1/p' | head -n 1
}

# fetch_kernel NAME SUITE PACKAGE: replaces $cache/kernels/NAME in one step, or leaves it alone.
fetch_kernel() {
    local name=$1 suite=$2 package=$3 options uri release part image
    work=$(mktemp -d "$cache/fetch.XXXXXX")
    mkdir -p "$work"/{lists/partial,cache/archives/partial,debs,root,kernel}

    IFS="|" read -r options uri < <(host_archive) ||
        die "no Debian archive in this host's apt sources, so kernel $name cannot be fetched"
    echo "deb $options $uri $suite main" >"$work/sources.list"
    private_apt apt-get update >"$work/log" 2>&1 || {
        cat "$work/log" >&2
        die "the archive's suite '$suite' cannot be reached or verified; kernel $name is missing"
    }
    release=$(newest_release "$package")
    [[ -n $release ]] || die "suite '$suite' has no package '$package'"
    say "fetching kernel $name: $release"

    # Newer packaging splits the image off into linux-binary and its configuration into linux-base.
    for part in image binary base; do
        part=linux-$part-$release
        private_apt apt-cache show "$part" >/dev/null 2>&1 || continue
        (cd "$work/debs" && private_apt apt-get download "$part" >>"$work/log" 2>&1) || {
            cat "$work/log" >&2
            die "package '$part' cannot be downloaded; kernel $name is missing"
        }
    done
    for part in "$work"/debs/*.deb; do dpkg-deb -x "$part" "$work/root"; done
    image=$(find "$work/root" -type f -name 'vmlinuz*' -print -quit)
    [[ -n $image ]] || die "the packages of $release hold no vmlinuz"
    mv "$image" "$work/kernel/vmlinuz"
    find "$work/root" -type f \( -name "config-$release" -o -path '*/modules/*/config' \) \
        -exec mv {} "$work/kernel/config" \; -quit
    echo "$release" >"$work/kernel/release"

    mkdir -p "$cache/kernels"
    rm -rf "$cache/kernels/$name"
    mv "$work/kernel" "$cache/kernels/$name"
    rm -rf "$work"
}

main() {
    local refresh=no name suite package
    case ${1-} in
    '') ;;
    --refresh) refresh=yes ;;
    *) die "unknown option '$1' (the only one is --refresh)" ;;
    esac
    [[ $(uname -m) == x86_64 ]] || die "the testbed emulates x86-64 and is built for it only"
    install_host_packages
    check_rust
    mkdir -p "$cache"
    trap 'rm -rf "$work"' EXIT
    while read -r name suite package; do
        [[ $refresh == no && -s $cache/kernels/$name/vmlinuz ]] ||
            fetch_kernel "$name" "$suite" "$package"
    done < <(kernel_table)
}

main "$@"
