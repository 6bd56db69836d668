#!/bin/sh
# Makes this guest a cluster of one node. There is no network: the node's address is one of the
# loopback device, and pods get one that leads nowhere.
#
#   node.sh NAME=FILE...    with these images; a file has the tag
set -eu
here=$(dirname "$0")
kube=/opt/kube/kube
address=10.0.0.1
api=https://$address:6443
export KUBECONFIG=/run/kube/config

mkdir -p /run/kube /etc/cni/net.d /etc/kubernetes
cp "$here/10-nowhere.conflist" /etc/cni/net.d/
cp "$here/nowhere" /usr/lib/cni/
ip link set lo up
ip address add "$address/32" dev lo
openssl genrsa -out /run/kube/accounts.key 2048 2>/dev/null
echo 'secret,admin,admin,system:masters' >/run/kube/tokens
cat >"$KUBECONFIG" <<END
apiVersion: v1
kind: Config
current-context: node
clusters: [{name: node, cluster: {server: "$api", insecure-skip-tls-verify: true}}]
users: [{name: admin, user: {token: secret}}]
contexts: [{name: node, context: {cluster: node, user: admin}}]
END

# service NAME COMMAND...: what it says is in the journal.
service() {
    name=$1
    shift
    systemd-run --quiet --unit="$name" --property=Restart=on-failure --property=RestartSec=2 \
        --property=Delegate=yes --property=KillMode=process --setenv=KUBECONFIG="$KUBECONFIG" "$@"
}

# Debian's own units have other settings.
systemctl --quiet stop containerd etcd
service kube-containerd containerd --config "$here/containerd.toml"
service kube-etcd etcd --data-dir=/run/kube/etcd --unsafe-no-fsync \
    --heartbeat-interval=1000 --election-timeout=10000
service kube-apiserver "$kube" kube-apiserver --etcd-servers=http://127.0.0.1:2379 \
    --bind-address="$address" --advertise-address="$address" --cert-dir=/run/kube/certificates \
    --service-cluster-ip-range=10.1.0.0/24 --token-auth-file=/run/kube/tokens \
    --authorization-mode=RBAC --service-account-issuer=https://node \
    --service-account-key-file=/run/kube/accounts.key \
    --service-account-signing-key-file=/run/kube/accounts.key \
    --kubelet-preferred-address-types=InternalIP \
    --etcd-healthcheck-timeout=60s --etcd-readycheck-timeout=60s
controllers=daemonset-controller,garbage-collector-controller,namespace-controller
controllers=$controllers,node-lifecycle-controller,serviceaccount-controller
service kube-controller-manager "$kube" kube-controller-manager --kubeconfig="$KUBECONFIG" \
    --leader-elect=false --service-account-private-key-file=/run/kube/accounts.key \
    --controllers="$controllers"
service kube-scheduler "$kube" kube-scheduler --kubeconfig="$KUBECONFIG" --leader-elect=false
service kubelet "$kube" kubelet --config="$here/kubelet.yaml" --kubeconfig="$KUBECONFIG" \
    --node-ip="$address" --hostname-override=node
for image in "$@"; do
    until ctr --namespace k8s.io images import --base-name "${image%%=*}" "${image#*=}"; do
        sleep 2
    done
done
