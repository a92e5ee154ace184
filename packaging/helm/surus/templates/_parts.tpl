{{- /* Parts that the Deployments for pages and for jobs share. */ -}}

{{- define "surus.selector" -}}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "surus.labels" -}}
{{ include "surus.selector" . }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version | replace "+" "_" }}
{{- end -}}

{{- /* How the pod of a component runs: everything but its containers. */ -}}
{{- define "surus.pod" -}}
# The variables of a Service called surus-… would be taken for settings.
enableServiceLinks: false
automountServiceAccountToken: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  seccompProfile:
    type: RuntimeDefault
volumes:
  - name: tmp
    emptyDir:
      sizeLimit: {{ .Values.tmpSize }}
{{- end -}}

{{- define "surus.image" -}}
image: {{ printf "%s:%s" .Values.image.repository (toString .Values.image.tag) | quote }}
{{- with .Values.image.pullPolicy }}
imagePullPolicy: {{ . }}
{{- end }}
{{- end -}}

{{- /* Entries of env that both components have. */ -}}
{{- define "surus.env" -}}
- name: SURUS_HTTP_MAX_TEMP_SIZE
  value: {{ .Values.maxTempSize | quote }}
{{- range $name, $value := .Values.env }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end -}}

{{- /* The rest of a container: root, and the values of its component. */ -}}
{{- define "surus.container" -}}
envFrom:
  - secretRef:
      name: {{ .root.Values.secretName | default .root.Release.Name }}
      optional: true
resources:
  {{- toYaml .of.resources | nindent 2 }}
startupProbe:
  httpGet:
    path: /-/ready
    port: admin
  periodSeconds: 2
  timeoutSeconds: 5
  failureThreshold: {{ div (add1 .of.startupTimeout) 2 }}
readinessProbe:
  httpGet:
    path: /-/ready
    port: admin
  periodSeconds: 5
  timeoutSeconds: 5
livenessProbe:
  httpGet:
    path: /-/health
    port: admin
  periodSeconds: 10
  timeoutSeconds: 5
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
volumeMounts:
  - name: tmp
    mountPath: /tmp
{{- end -}}

{{- /* The clients of the admin listener. */ -}}
{{- define "surus.admin-rule" -}}
- ports:
    - port: admin
  from:
    - namespaceSelector:
        matchLabels:
          kubernetes.io/metadata.name: {{ .Values.monitoringNamespace }}
{{- end -}}
