{{- define "pghot.selector" -}}
app.kubernetes.io/name: pghot
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "pghot.labels" -}}
{{ include "pghot.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "pghot.name" -}}
{{ printf "%s-pghot" .Release.Name | trunc 63 | trimSuffix "-" | replace "pghot-pghot" "pghot" }}
{{- end }}

{{- define "pghot.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* The config file: JSON of a string, a number or a boolean is TOML, too. */}}
{{- define "pghot.config" -}}
{{- if hasKey .Values.config "record_file" }}
{{- fail "set recording: true instead of config.record_file: the pod may write to /var/lib/pghot only" }}
{{- end }}
{{- if .Values.recording }}
record_file = "/var/lib/pghot/pghot.profile"
{{- end }}
{{- range $name, $value := .Values.config }}
{{ $name }} = {{ $value | toJson }}
{{- end }}
{{- range .Values.policies }}

[[policy]]
{{- range $name, $value := . }}
{{ $name }} = {{ $value | toJson }}
{{- end }}
{{- end }}
{{- end }}

{{/*
What pghot may do, instead of all: each capability has its reason in docs/install.md, "Rights". The
image has no user `pghot`, so it stays root and needs no capability to become another. SYS_RESOURCE
stands for the unit's LimitMEMLOCK and OOMScoreAdjust; it is given up at the start.
*/}}
{{- define "pghot.security" -}}
privileged: false
runAsUser: 0
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
  add:
    - BPF
    - PERFMON
    - SYSLOG
    - SYS_ADMIN
    - SYS_NICE
    - SYS_PTRACE
    - DAC_OVERRIDE
    - DAC_READ_SEARCH
    - FOWNER
    - SYS_RESOURCE
# The profile of container runtimes forbids move_pages(2), whatever the capabilities. pghot refuses
# itself what it never needs: SECURITY.md.
seccompProfile:
  type: Unconfined
# The profile of container runtimes forbids writing sysctls and looking into other processes.
appArmorProfile:
  type: Unconfined
{{- end }}

{{- define "pghot.mounts" -}}
# /proc/sys of a container cannot be written, and nothing can be mounted over it: so the host's is
# beside it, and PGHOT_PROC names it. Two sysctls are written, and accessed bits cleared, there.
- name: proc
  mountPath: /host/proc
# The scheduler's and MGLRU's files, which containers do not have.
- name: debugfs
  mountPath: /sys/kernel/debug
# Control groups of all pods, for policies and for who is demoted; a container sees its own.
- name: cgroups
  mountPath: /sys/fs/cgroup
  readOnly: true
# The host's own settings, until they are put back: they must outlive the pod.
- name: run
  mountPath: /run/pghot
- name: config
  mountPath: /etc/pghot
  readOnly: true
{{- end }}
