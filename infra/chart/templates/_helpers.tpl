{{/* What names of objects begin with: the release, with the chart's name where that does not say it. */}}
{{- define "internevo.name" -}}
{{- if contains .Chart.Name .Release.Name -}}{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else -}}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" }}{{- end -}}
{{- end -}}

{{/* By these the chart's objects find its pods. They never change. */}}
{{- define "internevo.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "internevo.labels" -}}
{{ include "internevo.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | quote }}
{{- end -}}

{{- define "internevo.image" -}}
{{- if .Values.image.digest -}}{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{- end -}}
{{- end -}}

{{- define "internevo.claim" -}}
{{ .Values.data.existingClaim | default (printf "%s-data" (include "internevo.name" .)) }}
{{- end -}}

{{/* What of a service's `cluster` is in force: none where nothing is launched. Called with root and service. */}}
{{- define "internevo.cluster" -}}
{{- if .root.Values.launcher.enabled -}}{{ .service.cluster }}{{- else -}}none{{- end -}}
{{- end -}}

{{/* A service has more than one pod at its least. Called with the service. */}}
{{- define "internevo.several" -}}
{{- $least := .replicas -}}
{{- if (.autoscaling | default dict).enabled -}}{{- $least = .autoscaling.minimum -}}{{- end -}}
{{- if gt (int $least) 1 -}}true{{- end -}}
{{- end -}}

{{/* A rule of egress. Called with protocols and target. */}}
{{- define "internevo.egress" -}}
- ports:
    {{- range $port := .target.ports }}
    {{- range $.protocols }}
    - { protocol: {{ . }}, port: {{ $port }} }
    {{- end }}
    {{- end }}
  {{- with .target.to }}
  to: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}

{{/* A cluster that services launch on by their own account lies where the account may. */}}
{{- define "internevo.check" -}}
{{- $namespaces := .Values.launcher.namespaces | default (list .Release.Namespace) -}}
{{- range $key, $cluster := .Values.clusters -}}
{{- with $cluster.kubernetes -}}
{{- $namespace := .namespace | default "default" -}}
{{- if and $.Values.launcher.enabled (not .kubeconfig) (not (has $namespace $namespaces)) -}}
{{- fail (printf "clusters.%s.kubernetes.namespace is %s, where the services have no rights: name it in launcher.namespaces, which has %s" $key $namespace (join ", " $namespaces)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
