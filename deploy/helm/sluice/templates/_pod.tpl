{{/* The container of the relay, for the tier and for sidecars. */}}
{{- define "sluice.container" -}}
{{- $config := include "sluice.config" . | fromYaml -}}
{{- $isSidecar := include "sluice.isSidecar" . -}}
{{- $ready := dict "path" "/ready" "port" "admin" -}}
{{- $healthy := dict "path" "/healthz" "port" "admin" -}}
{{- if $config.admin.tls -}}
{{- $_ := set $ready "scheme" "HTTPS" -}}
{{- $_ := set $healthy "scheme" "HTTPS" -}}
{{- end -}}
name: sluice
image: {{ include "sluice.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- if and $isSidecar .Values.sidecar.native }}
restartPolicy: Always
{{- end }}
args: [serve, --config, /etc/sluice/sluice.yaml]
env:
  - name: POD_NAME
    valueFrom: { fieldRef: { fieldPath: metadata.name } }
  - name: POD_NAMESPACE
    valueFrom: { fieldRef: { fieldPath: metadata.namespace } }
  {{- with .Values.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
ports:
  {{- range $name, $port := include "sluice.ports" . | fromJson }}
  - { name: {{ $name }}, containerPort: {{ int64 $port }}, protocol: TCP }
  {{- end }}
  - { name: admin, containerPort: {{ include "sluice.port" $config.admin.address }}, protocol: TCP }
# The kubelet asks by the pod's address, which the check of Host accepts; both paths are public.
startupProbe:
  {{- /* A relay that is to be ready only with its control plane must not be killed without; nor one that is ready only after a push at its siblings. */}}
  {{- $waits := or (dig "ready_requires_upstream" false $config.admin) (kindIs "map" (dig "ledger" "local" $config)) }}
  httpGet: {{ toYaml (ternary $healthy $ready $waits) | nindent 4 }}
  periodSeconds: 1
  timeoutSeconds: 2
  failureThreshold: 60
readinessProbe:
  httpGet: {{ toYaml $ready | nindent 4 }}
  periodSeconds: 5
  timeoutSeconds: 2
  failureThreshold: 2
livenessProbe:
  httpGet: {{ toYaml $healthy | nindent 4 }}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 3
resources: {{ include "sluice.resources" . | nindent 2 }}
securityContext: {{ toYaml .Values.securityContext | nindent 2 }}
volumeMounts:
  # The directory, never one file by subPath: that would never change.
  - { name: sluice-config, mountPath: /etc/sluice, readOnly: true }
  {{- if .Values.checkpoint.enabled }}
  - { name: sluice-state, mountPath: /var/lib/sluice }
  {{- end }}
  {{- if include "sluice.hasCertificates" . }}
  - { name: sluice-certs, mountPath: /certs, readOnly: true }
  {{- end }}
  {{- if .Values.admin.tokens }}
  - { name: sluice-tokens, mountPath: /tokens, readOnly: true }
  {{- end }}
  {{- with .Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* The volumes of the container. */}}
{{- define "sluice.volumes" -}}
{{- $certificates := .Values.certificates -}}
- name: sluice-config
  configMap: { name: {{ include "sluice.fullname" . }} }
{{- if .Values.checkpoint.enabled }}
- name: sluice-state
  {{- if .Values.checkpoint.existingClaim }}
  persistentVolumeClaim: { claimName: {{ .Values.checkpoint.existingClaim }} }
  {{- else }}
  emptyDir: { sizeLimit: {{ .Values.checkpoint.sizeLimit }} }
  {{- end }}
{{- end }}
{{- if or (eq $certificates.source "secret") (eq $certificates.source "cert-manager") }}
- name: sluice-certs
  secret: { secretName: {{ include "sluice.certificateSecret" . }}, defaultMode: 0440 }
{{- else if eq $certificates.source "cert-manager-csi" }}
- name: sluice-certs
  csi:
    driver: spiffe.csi.cert-manager.io
    readOnly: true
    volumeAttributes: { spiffe.csi.cert-manager.io/fs-group: {{ .Values.podSecurityContext.fsGroup | quote }} }
{{- else if eq $certificates.source "spire" }}
- name: sluice-certs
  emptyDir: { medium: Memory, sizeLimit: 1Mi }
- name: sluice-spire
  csi: { driver: csi.spiffe.io, readOnly: true }
{{- end }}
{{- if .Values.admin.tokens }}
- name: sluice-tokens
  secret: { secretName: {{ .Values.admin.tokensSecret }}, defaultMode: 0440 }
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* spiffe-helper, which writes the files: once before the relay starts, and then at each renewal. */}}
{{- define "sluice.spiffeHelper" -}}
{{- $spire := .Values.certificates.spire -}}
{{- range $isDaemon := list "false" "true" }}
- name: {{ ternary "certificates" "first-certificates" (eq $isDaemon "true") }}
  image: {{ $spire.helper.image | quote }}
  args: [-config, /etc/sluice/spiffe-helper.conf, -daemon-mode={{ $isDaemon }}]
  {{- if eq $isDaemon "true" }}
  restartPolicy: Always
  {{- end }}
  resources: {{ toYaml $spire.helper.resources | nindent 4 }}
  securityContext: {{ toYaml $.Values.securityContext | nindent 4 }}
  volumeMounts:
    - { name: sluice-config, mountPath: /etc/sluice, readOnly: true }
    - { name: sluice-certs, mountPath: /certs }
    - { name: sluice-spire, mountPath: /spire, readOnly: true }
{{- end }}
{{- end -}}

{{/*
For charts with this one as a dependency, with `mode: sidecar`:

    initContainers: {{- include "sluice.sidecar.initContainers" .Subcharts.sluice | nindent 8 }}
    volumes: {{- include "sluice.sidecar.volumes" .Subcharts.sluice | nindent 8 }}

Without `sidecar.native`, `sluice.sidecar.containers` goes under `containers`.
*/}}
{{- define "sluice.sidecar.initContainers" -}}
{{- if eq .Values.certificates.source "spire" -}}
{{- include "sluice.spiffeHelper" . | trim }}
{{ end -}}
{{- if .Values.sidecar.native -}}
- {{ include "sluice.container" . | indent 2 | trim }}
{{- end -}}
{{- end -}}

{{- define "sluice.sidecar.containers" -}}
{{- if not .Values.sidecar.native -}}
- {{ include "sluice.container" . | indent 2 | trim }}
{{- end -}}
{{- end -}}

{{- define "sluice.sidecar.volumes" -}}
{{- include "sluice.volumes" . -}}
{{- end -}}

{{/* For the pods with the sidecar, so that the PodMonitor finds them. */}}
{{- define "sluice.sidecar.labels" -}}
sluice-sidecar: {{ include "sluice.fullname" . }}
{{- end -}}
