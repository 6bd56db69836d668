# A part of testbed/setup.sh: how the Debian with Kubernetes for guests is made.
# shellcheck shell=bash

kube_version=v1.34.2

# build_kube: makes $work/opt/kube/kube of testbed/kube/kube.go. Parts of k8s.io/kubernetes lie in
# folders that a module of the proxy cannot have, and are modules of their own there.
build_kube() {
    local source=$work/source dir flags=-s
    flags+=" -X k8s.io/component-base/version.gitVersion=$kube_version"
    dir=$(cd "$work" && go mod download -json "k8s.io/kubernetes@$kube_version" |
        sed -n 's/^\t"Dir": "\(.*\)",$/\1/p') || return
    cp -r "$dir" "$source" && chmod -R u+w "$source" && rm -rf "$source"/{vendor,go.work*} &&
        sed -i -E "s#=> \./staging/src/(k8s.io/[a-z-]+)#=> \1 v0.${kube_version#v1.}#" \
            "$source/go.mod" &&
        install -D "$here/kube/kube.go" "$source/cmd/kube/main.go" &&
        (cd "$source" && CGO_ENABLED=0 GOFLAGS=-mod=mod go build -trimpath -ldflags="$flags" \
            -o "$work/opt/kube/kube" ./cmd/kube)
}

# make_pause: makes $work/kube/pause.tar, the image of the container that holds a pod together.
make_pause() {
    tar -C "$work" -xf "$work/root.tar" ./usr/bin/catatonit &&
        umoci init --layout "$work/pause" && umoci new --image "$work/pause:1" &&
        umoci insert --rootless --image "$work/pause:1" "$work/usr/bin/catatonit" /catatonit &&
        umoci config --image "$work/pause:1" \
            --config.entrypoint /catatonit --config.entrypoint -P &&
        tar -C "$work/pause" -cf "$work/kube/pause.tar" .
}

# A Debian with Kubernetes of the Go proxy, on Debian's containerd, runc and etcd.
fetch_kube() {
    local packages
    command -v go >/dev/null || die "Go is missing, so Kubernetes cannot be built"
    [[ -x $cache/helm/helm ]] || fetch_helm
    work=$(mktemp -d "$cache/fetch.XXXXXX")
    say "building Kubernetes $kube_version, which takes ten minutes"
    build_kube >"$work/log" 2>&1 || {
        cat "$work/log" >&2
        die "Kubernetes cannot be built"
    }
    install "$cache/helm/helm" "$work/opt/kube"
    packages=systemd-sysv,containerd,containernetworking-plugins,runc,etcd-server,catatonit
    make_debian kube 2G "$packages,iproute2,openssl"
    make_pause >"$work/log" 2>&1 || {
        cat "$work/log" >&2
        die "the image of the pause container cannot be made"
    }
    echo "$kube_version" >"$work/kube/version"
    replace "$work/kube" kube
}
