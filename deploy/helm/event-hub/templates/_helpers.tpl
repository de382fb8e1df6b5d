{{- define "hub.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end -}}
{{- end -}}

{{- define "hub.name" -}}
{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- end -}}

{{- define "hub.labels" -}}
app.kubernetes.io/name: event-hub
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "hub.selector" -}}
app.kubernetes.io/name: event-hub
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "hub.tokenSecret" -}}
{{ .Values.adminToken.secret | default (printf "%s-token" (include "hub.name" .)) }}
{{- end -}}

{{- define "hub.kafkaSecret" -}}
{{ if .Values.strimzi.enabled }}{{ include "hub.name" . }}{{ else }}{{ .Values.kafka.secret }}{{ end }}
{{- end -}}

{{- define "hub.project" -}}
{{- if eq .Values.project.from "git" -}}
/git/project{{ with .Values.project.git.folder }}/{{ . }}{{ end }}
{{- else -}}
/project
{{- end -}}
{{- end -}}

{{/* What every pod has: who it runs as, nothing of the cluster's API, and where it is placed. */}}
{{- define "hub.pod" -}}
securityContext:
  runAsNonRoot: true
  runAsUser: {{ .Values.podSecurity.runAsUser }}
  runAsGroup: {{ .Values.podSecurity.runAsGroup }}
  fsGroup: {{ .Values.podSecurity.runAsGroup }}
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.image.pullSecrets }}
imagePullSecrets: [{{ range $i, $name := . }}{{ if $i }}, {{ end }}{name: {{ $name }}}{{ end }}]
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* What every container of the hub has. */}}
{{- define "hub.container" -}}
image: {{ include "hub.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
envFrom: [{configMapRef: {name: {{ include "hub.name" . }}}}]
env:
  - {name: HUB_STORE_URL, valueFrom: {secretKeyRef: {name: {{ .Values.store.secret }}, key: url}}}
  - {name: HUB_TOKEN, valueFrom: {secretKeyRef: {name: {{ include "hub.tokenSecret" . }}, key: token}}}
  - {name: KAFKA_PASSWORD, valueFrom: {secretKeyRef: {name: {{ include "hub.kafkaSecret" . }}, key: password, optional: true}}}
{{- end -}}

{{- define "hub.mounts" -}}
- {name: tmp, mountPath: /tmp}
- {name: kafka, mountPath: /etc/hub-kafka, readOnly: true}
{{- if eq .Values.project.from "git" }}
- {name: project, mountPath: /git, readOnly: true}
{{- else if eq .Values.project.from "files" }}
- {name: project, mountPath: /project, readOnly: true}
{{- end }}
{{- if .Values.strimzi.enabled }}
- {name: kafka-ca, mountPath: /etc/hub-kafka-ca, readOnly: true}
{{- end }}
{{- end -}}

{{- define "hub.volumes" -}}
- {name: tmp, emptyDir: {}}
- name: kafka
  secret: {secretName: {{ include "hub.kafkaSecret" . }}, optional: true}
{{- if eq .Values.project.from "git" }}
- {name: project, emptyDir: {}}
{{- else if eq .Values.project.from "files" }}
- name: project
  configMap:
    name: {{ include "hub.name" . }}-project
    items:
    {{- range $path, $_ := .Values.project.files }}
      - {key: {{ $path | replace "/" "__" | quote }}, path: {{ $path | quote }}}
    {{- end }}
{{- end }}
{{- if .Values.strimzi.enabled }}
- name: kafka-ca
  secret: {secretName: {{ include "hub.name" . }}-cluster-ca-cert}
{{- end }}
{{- end -}}

{{/* A repository, fetched before the hub starts and followed while it runs. */}}
{{- define "hub.git" -}}
{{- if eq .Values.project.from "git" }}
{{- range $once := list true false }}
- name: git{{ if $once }}-first{{ end }}
  image: {{ $.Values.project.git.image }}
  args:
    - --repo={{ required "project.git.repository: the address of the project's repository" $.Values.project.git.repository }}
    - --ref={{ $.Values.project.git.ref }}
    - --root=/git
    - --link=project
    - --period={{ $.Values.project.git.everySeconds }}s
    {{- if $once }}
    - --one-time
    {{- end }}
  {{- if not $once }}
  restartPolicy: Always
  {{- end }}
  {{- with $.Values.project.git.secret }}
  env:
    - {name: GITSYNC_USERNAME, valueFrom: {secretKeyRef: {name: {{ . }}, key: username}}}
    - {name: GITSYNC_PASSWORD, valueFrom: {secretKeyRef: {name: {{ . }}, key: password}}}
  {{- end }}
  securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
  resources: {requests: {cpu: 10m, memory: 32Mi}, limits: {memory: 128Mi}}
  volumeMounts: [{name: project, mountPath: /git}, {name: tmp, mountPath: /tmp}]
{{- end }}
{{- end }}
{{- end -}}

{{/* A process without HTTP writes a file every two seconds; one that does not for a minute is started again. */}}
{{- define "hub.alive" -}}
livenessProbe:
  exec: {command: [sh, -c, "find /var/lib/hub/contact -name '*.json' -mmin -1 | grep -q ."]}
  initialDelaySeconds: 60
  periodSeconds: 30
  failureThreshold: 4
{{- end -}}
