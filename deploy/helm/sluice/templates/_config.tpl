{{/* The section `tls` of a listener. */}}
{{- define "sluice.tls" -}}
{{- $certificates := .Values.certificates -}}
certificates: [{ certificate_file: /certs/tls.crt, private_key_file: /certs/tls.key }]
{{- if eq .clientCertificate "none" }}
client_certificate: none
{{- else }}
client_certificate: {{ .clientCertificate }}
ca_certificate_file: /certs/ca.crt
{{- if $certificates.trustDomain }}
trust_domain: {{ $certificates.trustDomain }}
{{- else }}
identity: dns
{{- end }}
{{- with $certificates.clients }}
clients: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "sluice.defaultConfig" -}}
{{- $certificates := .Values.certificates -}}
{{- $hasCertificates := include "sluice.hasCertificates" . -}}
{{- $isSidecar := include "sluice.isSidecar" . -}}
{{- $memory := include "sluice.resources" . | fromYaml | dig "limits" "memory" "" -}}
node:
  id: ${POD_NAME}
{{- if not (hasKey .Values.config "xds_servers") }}
xds_servers:
  - server_uri: {{ required "set controlPlane to HOST:PORT of the control plane, or config.xds_servers" .Values.controlPlane | quote }}
    {{- if and $hasCertificates $certificates.upstream }}
    channel_creds:
      - type: tls
        config: { ca_certificate_file: /certs/ca.crt, certificate_file: /certs/tls.crt, private_key_file: /certs/tls.key }
    {{- else }}
    channel_creds: [{ type: insecure }]
    {{- end }}
{{- end }}
listeners:
  - name: main
    address: {{ printf "%s:18000" (ternary "127.0.0.1" .Values.bindAddress (eq .Values.mode "sidecar")) | quote }}
    {{- if and $hasCertificates (not $isSidecar) }}
    tls: {{ include "sluice.tls" (dict "Values" .Values "clientCertificate" $certificates.clientCertificate) | nindent 6 }}
    {{- end }}
admin:
  address: {{ printf "%s:%v" .Values.bindAddress .Values.admin.port | quote }}
  {{- if .Values.admin.tls }}
  tls: {{ include "sluice.tls" (dict "Values" .Values "clientCertificate" (ternary "none" "optional" (eq $certificates.clientCertificate "none"))) | nindent 4 }}
  {{- end }}
  auth:
    public: {{ toJson .Values.admin.public }}
    {{- with .Values.admin.tokens }}
    tokens:
      {{- range . }}
      - { name: {{ .name | quote }}, token_file: {{ printf "/tokens/%s" .key | quote }}, roles: {{ toJson .roles }} }
      {{- end }}
    {{- end }}
log:
  format: json
reload:
  watch: true
{{- if $memory }}
limits:
  memory_bytes: {{ printf "%dKiB" (div (mulf (include "sluice.bytes" $memory | int64) 0.85 | int64) 1024) }}
{{- end }}
{{- if .Values.checkpoint.enabled }}
checkpoint:
  directory: /var/lib/sluice/checkpoint
{{- end }}
drain: {{ ternary "1s" "30s" (eq .Values.mode "sidecar") }}
drain_delay: {{ ternary "0s" "5s" (eq .Values.mode "sidecar") }}
{{- end -}}

{{/* The whole configuration: the chart's own, and `config` over it. */}}
{{- define "sluice.config" -}}
{{- $own := include "sluice.defaultConfig" . | fromYaml -}}
{{- if hasKey $own "Error" -}}
{{- fail $own.Error -}}
{{- end -}}
{{- toYaml (mergeOverwrite $own (deepCopy .Values.config)) -}}
{{- end -}}

{{/* The keys that need a new process (REL table): a change of these alone replaces the pods. */}}
{{- define "sluice.restartKeys" -}}
{{- $config := include "sluice.config" . | fromYaml -}}
{{- $checkpoint := get $config "checkpoint" -}}
{{- $directory := "" -}}
{{- if kindIs "map" $checkpoint -}}
{{- $directory = $checkpoint.directory -}}
{{- end -}}
{{- $keys := dict "node" $config.node "checkpoint.directory" $directory "admin.address" $config.admin.address -}}
{{- with $config.ledger -}}
{{- $_ := set $keys "ledger" . -}}
{{- end -}}
{{- toJson $keys -}}
{{- end -}}

{{/* What the tier asks the cluster's API for: `nodes` (and Pods), `pods`, or nothing. */}}
{{- define "sluice.asksCluster" -}}
{{- $config := include "sluice.config" . | fromYaml -}}
{{- $facts := default dict $config.facts -}}
{{- if and (kindIs "map" $facts.kubernetes) (not (include "sluice.isSidecar" .)) -}}
{{- $kubernetes := default dict $facts.kubernetes -}}
{{- if not $kubernetes.kubeconfig -}}
{{- ternary "nodes" "pods" (ne (toString (get $kubernetes "nodes")) "false") -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The namespace of a ledger in this cluster, or nothing. */}}
{{- define "sluice.ledgerNamespace" -}}
{{- $config := include "sluice.config" . | fromYaml -}}
{{- if and (kindIs "map" $config.ledger) (not (include "sluice.isSidecar" .)) -}}
{{- $kubernetes := get $config.ledger "kubernetes" -}}
{{- if kindIs "map" $kubernetes -}}
{{- if not (get $kubernetes "kubeconfig") -}}
{{- default .Release.Namespace (get $kubernetes "namespace") -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The port of an address that other pods can reach; nothing for loopback and unix sockets. */}}
{{- define "sluice.port" -}}
{{- if not (regexMatch "^(unix:|127\\.|\\[::1\\]|localhost)" .) -}}
{{- regexFind "[0-9]+$" . -}}
{{- end -}}
{{- end -}}

{{/* Ports of the listeners, as a JSON map from the name of a port to its number. */}}
{{- define "sluice.ports" -}}
{{- $ports := dict -}}
{{- range (include "sluice.config" . | fromYaml).listeners -}}
{{- $port := include "sluice.port" .address -}}
{{- if $port -}}
{{- $name := printf "xds-%s" (regexReplaceAll "[^a-z0-9]+" (lower .name) "-") | trunc 15 | trimAll "-" -}}
{{- if hasKey $ports $name -}}
{{- fail (printf "listeners: the names of two listeners give the same port name %s" $name) -}}
{{- end -}}
{{- $_ := set $ports $name (int64 $port) -}}
{{- end -}}
{{- end -}}
{{- toJson $ports -}}
{{- end -}}

{{/* HND-8: the delay of the drain, the drain, and 15 s for what the host does beside. */}}
{{- define "sluice.terminationSeconds" -}}
{{- $config := include "sluice.config" . | fromYaml -}}
{{- $delay := include "sluice.seconds" (default "0s" $config.drain_delay) | int64 -}}
{{- add $delay (include "sluice.seconds" (default "10s" $config.drain) | int64) 15 -}}
{{- end -}}

{{/* Faults that no schema sees. */}}
{{- define "sluice.validate" -}}
{{- $kubernetes := dig "facts" "kubernetes" "" .Values.config -}}
{{- if and (kindIs "map" $kubernetes) (include "sluice.isSidecar" .) (not (dig "kubeconfig" "" $kubernetes)) -}}
{{- fail "config.facts.kubernetes: each application's pod would watch the whole cluster; use mode: tier" -}}
{{- end -}}
{{- if and (include "sluice.asksCluster" .) (default dict .Values.rbac).create (not .Values.serviceAccount.create) (not .Values.serviceAccount.name) -}}
{{- fail "config.facts.kubernetes: the right to read Pods would be everybody's who has the account `default`; set serviceAccount.name, or rbac.create: false" -}}
{{- end -}}
{{- $ledger := dig "ledger" "" .Values.config -}}
{{- if and (kindIs "map" $ledger) (include "sluice.isSidecar" .) -}}
{{- if and (kindIs "map" (get $ledger "kubernetes")) (not (dig "kubernetes" "kubeconfig" "" $ledger)) -}}
{{- fail "config.ledger.kubernetes: each application's account would need the rights of the ledger; use mode: tier" -}}
{{- end -}}
{{- end -}}
{{- if and (include "sluice.ledgerNamespace" .) (default dict .Values.rbac).create (not .Values.serviceAccount.create) (not .Values.serviceAccount.name) -}}
{{- fail "config.ledger.kubernetes: the rights of the ledger would be everybody's who has the account `default`; set serviceAccount.name, or rbac.create: false" -}}
{{- end -}}
{{- $certificates := .Values.certificates -}}
{{- $hasCertificates := include "sluice.hasCertificates" . -}}
{{- if and $hasCertificates (ne $certificates.clientCertificate "none") (not $certificates.trustDomain) (not $certificates.clients) -}}
{{- fail "certificates: set trustDomain, so that clients prove SPIFFE IDs; or clients, a list of DNS names; or clientCertificate: none" -}}
{{- end -}}
{{- if and (eq $certificates.source "secret") (not $certificates.secretName) -}}
{{- fail "certificates.secretName: needed with source: secret" -}}
{{- end -}}
{{- if and (eq $certificates.source "cert-manager") (not $certificates.certManager.issuer.name) -}}
{{- fail "certificates.certManager.issuer.name: needed with source: cert-manager" -}}
{{- end -}}
{{- if and .Values.admin.tls (not $hasCertificates) -}}
{{- fail "admin.tls: needs certificates.source" -}}
{{- end -}}
{{- if and .Values.admin.tokens (not (and .Values.admin.tls .Values.admin.tokensSecret)) -}}
{{- fail "admin.tokens: needs admin.tls, because others could read a token on the way, and admin.tokensSecret" -}}
{{- end -}}
{{- if not (include "sluice.port" (include "sluice.config" . | fromYaml).admin.address) -}}
{{- fail "config.admin.address: the probes of the kubelet reach no loopback and no unix socket" -}}
{{- end -}}
{{- if .Values.checkpoint.existingClaim -}}
{{- if or .Values.autoscaling.enabled (ne (include "sluice.replicas" .) "1") -}}
{{- fail "checkpoint.existingClaim: a claim is for one relay; set replicas to 1, without autoscaling" -}}
{{- end -}}
{{- if not (dig "node" "id" "" .Values.config) -}}
{{- fail "checkpoint.existingClaim: set config.node.id; a relay does not read the checkpoint of another node, and each pod has another name" -}}
{{- end -}}
{{- end -}}
{{- end -}}
