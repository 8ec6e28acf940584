{{/* What all groups of pods share. Each takes a dict: root, group (of the values) and what is particular. */}}

{{- define "outrider.image" -}}
{{ .root.Values.images.registry }}/{{ .group.image }}:{{ .root.Values.images.tag | default .root.Chart.AppVersion }}
{{- end }}

{{- define "outrider.hasModel" -}}
{{- $sources := list }}
{{- with .Values.model.hub.repo }}{{ $sources = append $sources . }}{{ end }}
{{- with .Values.model.claim }}{{ $sources = append $sources . }}{{ end }}
{{- with .Values.model.image }}{{ $sources = append $sources . }}{{ end }}
{{- if gt (len $sources) 1 }}{{ fail (printf "model needs at most one of hub.repo, claim and image, found %s" (join ", " $sources)) }}{{ end }}
{{- if $sources }}yes{{ end }}
{{- end }}

{{- define "outrider.metadata" -}}
labels: {app.kubernetes.io/part-of: {{ .Release.Name }}}
{{- end }}

{{- define "outrider.scheduling" -}}
{{- with .group.nodeSelector }}
nodeSelector: {{ toJson . }}
{{- end }}
{{- with .group.tolerations }}
tolerations: {{ toJson . }}
{{- end }}
{{- with .group.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
{{- with .root.Values.images.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - {name: {{ . }}}
  {{- end }}
{{- end }}
{{- if .root.Values.priorityClasses }}
priorityClassName: {{ .root.Release.Name }}-{{ .priority | default "serving" }}
{{- end }}
{{- end }}

{{- define "outrider.user" -}}
runAsNonRoot: true
runAsUser: 10001 # the images' user "outrider"
runAsGroup: 10001
fsGroup: 10001
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* A container's environment, volumes and rights; with `model` the folder of the model, with `keys` that of the keys. */}}
{{- define "outrider.container" -}}
image: {{ include "outrider.image" . }}
imagePullPolicy: {{ .root.Values.images.pullPolicy }}
env:
  - {name: RAY_USAGE_STATS_ENABLED, value: "0"}
  - {name: RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S, value: {{ .drain | toString | quote }}}
  {{- if .root.Values.logs.toStderr }}
  - {name: RAY_LOG_TO_STDERR, value: "1"}
  {{- end }}
  {{- with .group.env }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
securityContext:
  allowPrivilegeEscalation: false
  capabilities: {drop: [ALL]}
{{- $mounts := list }}
{{- if .model }}
{{- $path := "/models" }}
{{- if .root.Values.model.image }}{{ $path = printf "/models/%s" .root.Values.model.name }}{{ end }}
{{- $mounts = append $mounts (dict "name" "models" "mountPath" $path "readOnly" true) }}
{{- end }}
{{- if .keys }}{{ $mounts = append $mounts (dict "name" "keys" "mountPath" "/etc/outrider/keys" "readOnly" true) }}{{ end }}
{{- if .devices }}
{{- $mounts = append $mounts (dict "name" "gateway-tls" "mountPath" "/etc/outrider/gateway" "readOnly" true) }}
{{- $mounts = append $mounts (dict "name" "devices" "mountPath" "/etc/outrider/devices" "readOnly" true) }}
{{- end }}
{{- if .group.sharedMemory }}{{ $mounts = append $mounts (dict "name" "shared-memory" "mountPath" "/dev/shm") }}{{ end }}
{{- with concat $mounts .group.volumeMounts }}
volumeMounts:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "outrider.volumes" -}}
{{- $volumes := list }}
{{- if .model }}
{{- with .root.Values.model }}
{{- if .hub.repo }}{{ $volumes = append $volumes (dict "name" "models" "emptyDir" (dict "sizeLimit" .hub.size)) }}{{ end }}
{{- if .claim }}{{ $volumes = append $volumes (dict "name" "models" "persistentVolumeClaim" (dict "claimName" .claim "readOnly" true)) }}{{ end }}
{{- if .image }}{{ $volumes = append $volumes (dict "name" "models" "image" (dict "reference" .image)) }}{{ end }}
{{- end }}
{{- end }}
{{- if .keys }}{{ $volumes = append $volumes (dict "name" "keys" "secret" (dict "secretName" .root.Values.keys.secret)) }}{{ end }}
{{- if .devices }}
{{- $volumes = append $volumes (dict "name" "gateway-tls" "secret" (dict "secretName" .group.tlsSecret)) }}
{{- $volumes = append $volumes (dict "name" "devices" "secret" (dict "secretName" .group.devicesSecret)) }}
{{- end }}
{{- with .group.sharedMemory }}
{{- $volumes = append $volumes (dict "name" "shared-memory" "emptyDir" (dict "medium" "Memory" "sizeLimit" .)) }}
{{- end }}
{{- with concat $volumes .group.volumes }}
volumes:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Images never ask a hub while they serve; this asks once, before. */}}
{{- define "outrider.fetch" -}}
{{- if and .model .root.Values.model.hub.repo }}
initContainers:
  - name: fetch-model
    image: {{ include "outrider.image" . }}
    imagePullPolicy: {{ .root.Values.images.pullPolicy }}
    command:
      - python
      - -c
      - |
        import os
        from huggingface_hub import snapshot_download
        snapshot_download(os.environ["REPO"], revision=os.environ["REVISION"], local_dir=os.environ["FOLDER"])
    env:
      - {name: HF_HUB_OFFLINE, value: "0"}
      - {name: HF_HOME, value: /tmp/huggingface}
      - {name: REPO, value: {{ .root.Values.model.hub.repo | quote }}}
      - {name: REVISION, value: {{ .root.Values.model.hub.revision | quote }}}
      - {name: FOLDER, value: /models/{{ .root.Values.model.name }}}
      {{- with .root.Values.model.hub.tokenSecret }}
      - name: HF_TOKEN
        valueFrom:
          secretKeyRef: {name: {{ . }}, key: token}
      {{- end }}
    securityContext:
      allowPrivilegeEscalation: false
      capabilities: {drop: [ALL]}
    resources:
      requests: {cpu: 500m, memory: 1Gi}
      limits: {memory: 4Gi}
    volumeMounts:
      - {name: models, mountPath: /models}
{{- end }}
{{- end }}

{{/* Of a worker: KubeRay's service sends requests to pods whose proxy says that it is well, and 503 while it drains. */}}
{{- define "outrider.workerProbes" -}}
readinessProbe:
  httpGet: {path: /-/healthz, port: serve}
  initialDelaySeconds: 10
  periodSeconds: 5
  timeoutSeconds: 2
  failureThreshold: 1
livenessProbe:
  httpGet: {path: /api/healthz, port: 52365}
  initialDelaySeconds: 60
  periodSeconds: 10
  timeoutSeconds: 10
  failureThreshold: 12
{{- end }}

{{- define "outrider.workerPorts" -}}
ports:
  - {containerPort: 8000, name: serve}
  - {containerPort: 8080, name: metrics}
{{- end }}
