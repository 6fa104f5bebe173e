{{- define "holdfast.name" -}}
{{ .Release.Name | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "holdfast.selector" -}}
app.kubernetes.io/name: {{ include "holdfast.name" . }}
{{- end }}

{{- define "holdfast.labels" -}}
{{ include "holdfast.selector" . }}
app.kubernetes.io/part-of: holdfast
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "holdfast.configMap" -}}
{{- $given := compact (list .Values.job.code .Values.job.configMap .Values.job.path) -}}
{{- if ne (len $given) 1 -}}
{{- fail "give one of job.code, job.configMap and job.path: helm install NAME CHART --set-file job.code=FILE.py" -}}
{{- end -}}
{{- if .Values.job.code -}}
{{ include "holdfast.name" . }}-job
{{- else -}}
{{ .Values.job.configMap }}
{{- end -}}
{{- end }}
