{{- define "sluice.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "sluice.fullname" -}}
{{- $name := include "sluice.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "sluice.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "sluice.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "sluice.selectorLabels" -}}
app.kubernetes.io/name: {{ include "sluice.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "sluice.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "sluice.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "sluice.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{- define "sluice.isSidecar" -}}
{{- if eq .Values.mode "sidecar" }}yes{{ end -}}
{{- end -}}

{{- define "sluice.hasCertificates" -}}
{{- if ne .Values.certificates.source "none" }}yes{{ end -}}
{{- end -}}

{{- define "sluice.certificateSecret" -}}
{{- default (printf "%s-tls" (include "sluice.fullname" .)) .Values.certificates.secretName -}}
{{- end -}}

{{/* Whole seconds of a duration of the relay (10s, 500ms, 0.5s, 5m, 1h), rounded up. */}}
{{- define "sluice.seconds" -}}
{{- $text := toString . -}}
{{- $number := regexFind "^[0-9]+(\\.[0-9]+)?" $text -}}
{{- $units := dict "ms" 0.001 "s" 1.0 "m" 60.0 "h" 3600.0 -}}
{{- $unit := trimPrefix $number $text -}}
{{- if or (not $number) (not (hasKey $units $unit)) -}}
{{- fail (printf "%s is no duration: a number and ms, s, m or h" $text) -}}
{{- end -}}
{{- mulf (float64 $number) (get $units $unit) | ceil | int64 -}}
{{- end -}}

{{/* Bytes of a quantity of Kubernetes (512Mi, 1.5Gi, 1G, 1000000000). */}}
{{- define "sluice.bytes" -}}
{{- $text := ternary (toString .) (printf "%d" (int64 .)) (kindIs "string" .) -}}
{{- $number := regexFind "^[0-9]+(\\.[0-9]+)?" $text -}}
{{- $units := dict "" 1.0 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "Ki" 1024.0 "Mi" 1048576.0 "Gi" 1073741824.0 "Ti" 1099511627776.0 -}}
{{- $unit := trimPrefix $number $text -}}
{{- if or (not $number) (not (hasKey $units $unit)) -}}
{{- fail (printf "%s is no quantity of memory: a number and Ki, Mi, Gi, Ti, k, M, G, T or nothing" $text) -}}
{{- end -}}
{{- mulf (float64 $number) (get $units $unit) | int64 -}}
{{- end -}}

{{/* Cores of a quantity of Kubernetes (2, 0.5, 500m), in thousandths. */}}
{{- define "sluice.millicores" -}}
{{- $text := toString . -}}
{{- if hasSuffix "m" $text -}}
{{- trimSuffix "m" $text | int64 -}}
{{- else -}}
{{- mulf (float64 $text) 1000.0 | int64 -}}
{{- end -}}
{{- end -}}

{{- define "sluice.resources" -}}
{{- toYaml (ternary .Values.sidecar.resources .Values.resources (eq .Values.mode "sidecar")) -}}
{{- end -}}

{{/*
Clients that one replica serves, by the slopes of docs/scale.md: half of its memory less 64 MiB and the set twice, at 32 KiB a
client; half of its cores at 20 µs a client and change; at most 20,000.
*/}}
{{- define "sluice.clientsPerReplica" -}}
{{- $half := div (include "sluice.bytes" (dig "limits" "memory" "1Gi" .Values.resources) | int64) 2 -}}
{{- $fixed := mul (add 64 (mul 2 (int64 .Values.sizing.setMiB))) 1048576 -}}
{{- $byMemory := div (sub $half $fixed) 32768 -}}
{{- $cores := include "sluice.millicores" (dig "requests" "cpu" "1" .Values.resources) | int64 -}}
{{- $byCores := divf (mulf $cores 25.0) (float64 .Values.sizing.changesPerSecond) | floor | int64 -}}
{{- $clients := min $byMemory $byCores 20000 -}}
{{- if lt $clients 1 -}}
{{- fail (printf "sizing: a replica with these resources has no room for a set of %v MiB and %v changes a second" .Values.sizing.setMiB .Values.sizing.changesPerSecond) -}}
{{- end -}}
{{- $clients -}}
{{- end -}}

{{/* Replicas for the clients of `sizing`, and one to spare; 2 without a plan. */}}
{{- define "sluice.replicas" -}}
{{- $clients := int64 .Values.sizing.clients -}}
{{- if not (kindIs "invalid" .Values.replicas) -}}
{{- .Values.replicas -}}
{{- else if .Values.checkpoint.existingClaim -}}
1
{{- else if $clients -}}
{{- $each := include "sluice.clientsPerReplica" . | int64 -}}
{{- add (div (sub (add $clients $each) 1) $each) 1 -}}
{{- else -}}
2
{{- end -}}
{{- end -}}
