#!/bin/bash
# Builds what is installed on other machines, into out/:
#
#   packaging/build.sh           all of it
#   packaging/build.sh binary    out/pghot: static and stripped
#   packaging/build.sh deb       out/pghot_VERSION_amd64.deb
#   packaging/build.sh rpm       out/pghot-VERSION.x86_64.rpm
#   packaging/build.sh image     out/pghot-VERSION.oci.tar: a container image, from scratch
#
# A package takes out/pghot as it is, and builds it only if it is not there. The version is that of
# Cargo.toml and the number of the commit; PGHOT_PACKAGE_NUMBER replaces the latter. All times in
# the packages are the commit's, so that the same commit gives the same packages. Those of another
# version are removed.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
out=$root/out
build=$out/build
target=x86_64-unknown-linux-gnu

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$root/Cargo.toml" | head -n 1)
number=${PGHOT_PACKAGE_NUMBER:-$(git -C "$root" rev-list --count HEAD)}
SOURCE_DATE_EPOCH=$(git -C "$root" log -1 --format=%ct)
export SOURCE_DATE_EPOCH

say() { echo "package: $*" >&2; }
die() {
    say "$*"
    exit 1
}

need() {
    command -v "$1" >/dev/null || die "$1 is missing: run \`testbed/setup.sh --package\`"
}

# --- The binary ----------------------------------------------------------------------------------

# Everything is linked in, libc included, so that one binary runs on every distribution. Paths of
# this machine are left out.
build_binary() {
    local flags="-C target-feature=+crt-static --remap-path-prefix=$root=/pghot"
    flags+=" --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo"
    CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUSTFLAGS=$flags \
        cargo build --release --locked --target "$target" -p pghot-cli \
        --manifest-path "$root/Cargo.toml"
    mkdir -p "$out"
    strip -o "$out/pghot" "${CARGO_TARGET_DIR:-$root/target}/$target/release/pghot"
    # The loader must find nothing to load: then ldd lists nothing but what static-pie has.
    ! ldd "$out/pghot" 2>/dev/null | grep -q '=>' || die "out/pghot needs shared libraries"
    say "out/pghot: static, $(stat -c %s "$out/pghot" | numfmt --to=iec-i --suffix=B)"
}

have_binary() {
    [[ -x $out/pghot ]] || build_binary
}

# --- The packages --------------------------------------------------------------------------------

# An empty folder for intermediate files.
fresh() {
    rm -rf "${build:?}/$1"
    mkdir -p "$build/$1"
    echo "$build/$1"
}

# stage DIR ZSH_COMPLETIONS: lays out the files of a package below DIR.
stage() {
    local dir=$1 zsh=$2 docs=$root/docs page
    install -D -m 755 "$out/pghot" "$dir/usr/bin/pghot"
    install -D -m 644 "$root/packaging/pghot.toml" "$dir/etc/pghot/pghot.toml"
    install -D -m 644 "$docs/completions/pghot.bash" \
        "$dir/usr/share/bash-completion/completions/pghot"
    install -D -m 644 "$docs/completions/_pghot" "$dir/$zsh/_pghot"
    install -D -m 644 "$docs/completions/pghot.fish" \
        "$dir/usr/share/fish/vendor_completions.d/pghot.fish"
    install -D -m 644 -t "$dir/usr/share/doc/pghot" \
        "$root/README.md" "$root/SECURITY.md" "$docs"/{install,operations,sources,demotion}.md
    install -D -m 644 -t "$dir/usr/share/doc/pghot/examples" "$root/packaging/network.conf" \
        "$root/packaging/pghot-metrics.socket" \
        "$root/packaging/prometheus"/{pghot,canary}.rules.yml "$root/packaging/grafana/pghot.json" \
        "$root/packaging/queries"/*
    for page in "$docs"/man/*.1; do
        install -D -m 644 -t "$dir/usr/share/man/man1" "$page"
    done
}

build_deb() {
    need dh_installsysusers
    need lintian
    have_binary
    local work name=pghot_$version+${number}_amd64.deb
    work=$(fresh deb)/pghot
    mkdir "$work"
    cp -r "$root/packaging/debian" "$work/debian"
    cp "$root/packaging/pghot.service" "$root/packaging/pghot.sysusers" "$work/debian/"
    cp "$root/CHANGELOG.md" "$work/"
    stage "$work/files" usr/share/zsh/vendor-completions
    cat >"$work/debian/changelog" <<END
pghot ($version+$number) unstable; urgency=medium

  * Built from commit $(git -C "$root" rev-parse --short=12 HEAD).

 -- $(sed -n 's/^Maintainer: //p' "$work/debian/control")  $(date -R -d "@$SOURCE_DATE_EPOCH")
END
    (cd "$work" && DEB_RULES_REQUIRES_ROOT=no debian/rules binary >"$build/deb/log" 2>&1) || {
        cat "$build/deb/log" >&2
        die "debian/rules failed"
    }
    lintian --no-cfg --allow-root --fail-on error,warning "$build/deb/$name" ||
        die "lintian does not like the package"
    rm -f "$out"/pghot_*.deb
    mv "$build/deb/$name" "$out/"
    say "out/$name"
}

build_rpm() {
    need rpmbuild
    have_binary
    local work name=pghot-$version-$number.x86_64.rpm
    work=$(fresh rpm)
    stage "$work/files" usr/share/zsh/site-functions
    install -D -m 644 -t "$work/files/usr/lib/systemd/system" "$root/packaging/pghot.service"
    install -D -m 644 "$root/packaging/pghot.sysusers" "$work/files/usr/lib/sysusers.d/pghot.conf"
    install -D -m 644 -t "$work/files/usr/share/doc/pghot" "$root/LICENSE.md" "$root"/LICENSES/*
    rpmbuild -bb --define "_topdir $work" --define "staged $work/files" \
        --define "wanted_version $version" --define "wanted_release $number" \
        "$root/packaging/rpm/pghot.spec" >"$work/log" 2>&1 || {
        cat "$work/log" >&2
        die "rpmbuild failed"
    }
    rm -f "$out"/pghot-*.rpm
    mv "$work/RPMS/x86_64/$name" "$out/"
    say "out/$name"
}

build_image() {
    need umoci
    have_binary
    local work layout when name=pghot-$version-$number.oci.tar
    work=$(fresh image)
    layout=$work/pghot
    when=$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
    install -m 755 "$out/pghot" "$work/binary"
    touch -d "@$SOURCE_DATE_EPOCH" "$work/binary"
    umoci init --layout "$layout"
    umoci new --image "$layout:$version"
    umoci insert --rootless --image "$layout:$version" --history.created "$when" \
        --history.created_by packaging/build.sh "$work/binary" /usr/bin/pghot
    umoci config --image "$layout:$version" --created "$when" --history.created "$when" \
        --architecture amd64 --os linux --config.entrypoint /usr/bin/pghot --config.cmd run \
        --history.created_by packaging/build.sh
    umoci gc --layout "$layout"
    rm -f "$out"/pghot-*.oci.tar
    tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
        -C "$layout" -cf "$out/$name" .
    say "out/$name"
}

main() {
    local what
    (($#)) || set -- binary deb rpm image
    for what in "$@"; do
        case $what in
        binary | deb | rpm | image) "build_$what" ;;
        *) die "unknown '$what' (there are binary, deb, rpm and image)" ;;
        esac
    done
}

main "$@"
