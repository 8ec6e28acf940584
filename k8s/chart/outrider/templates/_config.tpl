{{/* Outrider's configuration: the values' own, with what the chart knows. */}}
{{- define "outrider.config" -}}
{{- $known := dict "http" (dict "host" "0.0.0.0" "port" 8000) }}
{{- if .Values.keys.secret }}{{ $_ := set $known "auth" (dict "keys_file" "/etc/outrider/keys/keys.yaml") }}{{ end }}
{{- if include "outrider.hasModel" . }}
{{- $_ := set $known "model" (dict "target" (printf "/models/%s" .Values.model.name)) }}
{{- end }}
{{- with .Values.gateways }}
{{- if .replicas }}
{{- $address := required "gateways.address needs the name that devices dial, found none" .address }}
{{- if and .ingress.className (not (contains ":" $address)) }}{{ $address = printf "%s:443" $address }}{{ end }}
{{- $tls := dict "certificate" "/etc/outrider/gateway/tls.crt" "private_key" "/etc/outrider/gateway/tls.key" }}
{{- $gateway := dict "port" 8443 "address" $address "count" (int .replicas) "resources" (dict "gateway" 1.0) }}
{{- $who := dict "devices_file" "/etc/outrider/devices/devices.yaml" }}
{{- $_ := set $known "gateway" (merge $gateway $tls $who) }}
{{- end }}
{{- end }}
{{- toYaml (mergeOverwrite $known (deepCopy .Values.config)) }}
{{- end }}

{{/* Mistakes that would have the application wait without a word. */}}
{{- define "outrider.check" -}}
{{- $config := .Values.config }}
{{- $verifiers := ($config.verifiers | default dict) }}
{{- if and $verifiers.num_gpus .Values.verifiers.replicas }}
{{- if gt (float64 $verifiers.num_gpus) (float64 .Values.verifiers.gpus) }}
{{- fail (printf "verifiers.gpus needs at least config.verifiers.num_gpus (%v), found %v" $verifiers.num_gpus .Values.verifiers.gpus) }}
{{- end }}
{{- $count := int ($verifiers.count | default 1) }}
{{- if $verifiers.autoscaling }}{{ $count = int ($verifiers.autoscaling.max | default 1) }}{{ end }}
{{- if gt $count (int .Values.verifiers.replicas) }}
{{- fail (printf "verifiers.replicas needs at least config.verifiers' %d, found %v" $count .Values.verifiers.replicas) }}
{{- end }}
{{- end }}
{{- if and .Values.upgrade.incremental (not .Values.verifiers.replicas) }}
{{- fail "upgrade.incremental needs verifiers.replicas, found 0" }}
{{- end }}
{{- if and .Values.redis.enabled .Values.redis.external }}
{{- fail (printf "redis needs enabled: false beside external, found true and %s" .Values.redis.external) }}
{{- end }}
{{- with .Values.gateways }}
{{- if and .replicas .ingress.className (or (ne .serviceType "ClusterIP") (not .ingress.namespace) (not ($config.gateway | default dict).proxies)) }}
{{- fail "gateways.ingress.className needs serviceType: ClusterIP, ingress.namespace and config.gateway.proxies: else devices are bounded as one" }}
{{- end }}
{{- if and .replicas .ingress.namespace (ne .serviceType "ClusterIP") }}
{{- fail (printf "gateways.ingress.namespace needs serviceType: ClusterIP, found %s, whose devices could not come in" .serviceType) }}
{{- end }}
{{- $port := int (($config.gateway | default dict).port | default 8443) }}
{{- if and .replicas (ne $port 8443) }}
{{- fail (printf "config.gateway.port needs 8443, the pods' port, found %d" $port) }}
{{- end }}
{{- $count := int (($config.gateway | default dict).count | default .replicas) }}
{{- if and .replicas (gt $count (int .replicas)) }}
{{- fail (printf "gateways.replicas needs at least config.gateway.count (%d), found %v" $count .replicas) }}
{{- end }}
{{- range $config.drafters }}
{{- if and (eq (.from | default "") "gateway") (not $.Values.gateways.replicas) (not ($config.gateway | default dict).port) }}
{{- fail (printf "gateways.replicas needs at least 1 for the group %s of devices that dial in, found 0" .name) }}
{{- end }}
{{- end }}
{{- end }}
{{- if ne (int (($config.http | default dict).port | default 8000)) 8000 }}
{{- fail (printf "config.http.port needs 8000, the pods' port, found %v" $config.http.port) }}
{{- end }}
{{- $ingresses := add .Values.ingresses.replicas .Values.gateways.replicas }}
{{- if and $config.ingress $ingresses }}
{{- if gt (int ($config.ingress.count | default 1)) (int $ingresses) }}
{{- fail (printf "ingresses.replicas needs at least config.ingress.count (%v) less gateways.replicas, found %v" $config.ingress.count .Values.ingresses.replicas) }}
{{- end }}
{{- end }}
{{- end }}
