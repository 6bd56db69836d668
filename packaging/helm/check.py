"""Whether what the chart makes is what Kubernetes takes: `make chart-test` runs it.

`python packaging/helm/check.py HELM CRD` renders the chart with several values, and checks each object strictly
against the published schema of each version of Kubernetes, or, for a PodMonitor, of the CRD.
"""

import json
import pathlib
import re
import subprocess
import sys
import tomllib

import jsonschema
import kubernetes_validate
import yaml

CHART = pathlib.Path(__file__).parent / "pghot"
VERSIONS = ["1.30", "1.34", "1.37"]
CAPABILITIES = {
    "BPF", "PERFMON", "SYSLOG", "SYS_ADMIN", "SYS_NICE", "SYS_PTRACE", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER",
    "SYS_RESOURCE",
}
POLICIES = [{"cgroup": "/batch.slice", "weight": 20}, {"process": 'a"b', "exclude": True}]
FULL = {
    "policies": POLICIES,
    "pageCache": True,
    "recording": True,
    "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "podLabels": {"track": "canary"},
    "nodeSelector": {"memory": "tiered"},
    "tolerations": [{"operator": "Exists"}],
    "imagePullSecrets": [{"name": "registry"}],
    "config": {"freq_threshold": 1, "enabled_sources": "hint_fault,pgtscan"},
}


def rendered(helm: str, values: dict) -> list[dict]:
    """The objects of the chart."""
    command = [helm, "template", "pghot", str(CHART), "-n", "kube-system", "--kube-version", VERSIONS[0], "--values", "-"]
    done = subprocess.run(command, input=json.dumps(values), capture_output=True, text=True)
    if done.returncode:
        raise ValueError(done.stderr.strip())
    return [it for it in yaml.safe_load_all(done.stdout) if it]


def strict(schema: dict) -> dict:
    """A schema of a CRD that takes no field but those that it names."""
    if isinstance(schema, dict):
        schema = {key: strict(value) for key, value in schema.items()}
        if "properties" in schema and "type" in schema:
            schema.setdefault("additionalProperties", False)
    elif isinstance(schema, list):
        schema = [strict(item) for item in schema]
    return schema


def check_object(it: dict, crd: dict) -> None:
    """Fails if the object is not one of its kind."""
    if it["kind"] == "PodMonitor":
        schema = strict(crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
        schema["properties"]["metadata"] = {"type": "object"}
        jsonschema.validate(it, schema)
        return
    for version in VERSIONS:
        kubernetes_validate.validate(it, version, strict=True)


def check_daemon_set(it: dict) -> None:
    """Fails if a pod may do more than docs/kubernetes.md says, or has an option that is none."""
    pod = it["spec"]["template"]["spec"]
    for container in pod["initContainers"] + pod["containers"]:
        security = container["securityContext"]
        # Runtimes' profiles forbid move_pages(2).
        assert security["seccompProfile"] == {"type": "Unconfined"}
        assert security["privileged"] is False and security["readOnlyRootFilesystem"] is True
        assert security["capabilities"]["drop"] == ["ALL"]
        assert set(security["capabilities"]["add"]) == CAPABILITIES
        for mount in container["volumeMounts"]:
            assert mount["mountPath"] not in ("/proc", "/sys", "/"), mount
            assert not mount["mountPath"].startswith("/proc/"), "the runtime refuses mounts there"
        names = {mount["name"] for mount in container["volumeMounts"]}
        assert names <= {volume["name"] for volume in pod["volumes"]}
    assert [it["args"] for it in pod["initContainers"]] == [["restore"]]
    assert it["spec"]["updateStrategy"]["rollingUpdate"]["maxSurge"] == 0


def unit_capabilities() -> set[str]:
    """Those of packaging/pghot.service, but for the two that change the user; and what systemd does itself."""
    unit = (CHART.parents[1] / "pghot.service").read_text()
    lines = re.findall(r"^CapabilityBoundingSet=(.*)$", unit, re.M)
    return {name.removeprefix("CAP_") for line in lines for name in line.split()} - {"SETUID", "SETGID"} | {"SYS_RESOURCE"}


def main() -> None:
    helm, crd_path = sys.argv[1:]
    crd = yaml.safe_load(pathlib.Path(crd_path).read_text())
    subprocess.run([helm, "lint", "--strict", "--quiet", str(CHART)], check=True)
    assert unit_capabilities() == CAPABILITIES
    checked = 0
    sums = set()
    for values in ({}, FULL, {"podLabels": {"track": "canary"}}):
        objects = rendered(helm, values)
        for it in objects:
            check_object(it, crd)
            checked += 1
        by_kind = {it["kind"]: it for it in objects}
        assert ("PodMonitor" in by_kind) == (values is FULL), by_kind
        check_daemon_set(by_kind["DaemonSet"])
        if monitor := by_kind.get("PodMonitor"):
            assert monitor["spec"]["podTargetLabels"] == ["track"], "docs/canary.md needs it"
        text = by_kind["ConfigMap"]["data"]["pghot.toml"]
        config = tomllib.loads(text)
        assert config["metrics_address"] == "[::]:9464"
        # Profiles go where the pod may write, which is a volume.
        mounts = by_kind["DaemonSet"]["spec"]["template"]["spec"]["containers"][0]["volumeMounts"]
        writable = [f"{it['mountPath']}/pghot.profile" for it in mounts if it["name"] == "profiles"]
        assert writable == ([config["record_file"]] if "recording" in values else []), writable
        assert config.get("policy", []) == values.get("policies", []), config
        sums.add(by_kind["DaemonSet"]["spec"]["template"]["metadata"]["annotations"]["checksum/config"])
    assert len(sums) == 2, "another config is another pod, and the same is not"
    # These checks see.
    wrong = rendered(helm, FULL)
    for it in wrong:
        it["spec" if "spec" in it else "data"]["nonsense"] = {"x": 1}
        try:
            check_object(it, crd)
        except Exception:
            continue
        raise AssertionError(f"a {it['kind']} with a field too much passes")
    refused = {
        '{"config": {"x": [1]}}': "x",
        '{"config": {"record_file": "/tmp/x"}}': "recording: true",
        '{"policies": [{"weight": 0, "cgroup": "/"}]}': "weight",
        '{"imagee": {}}': "imagee",
    }
    for values, part in refused.items():
        try:
            rendered(helm, json.loads(values))
        except ValueError as error:
            assert part in str(error), error
            continue
        raise AssertionError(f"values {values} pass")
    print(f"{checked} objects are what Kubernetes {', '.join(VERSIONS)} and the PodMonitor's CRD take")


if __name__ == "__main__":
    main()
