{{- /* Called with this chart's context; in a chart that depends on it: index .Subcharts "storage-auth-sidecar". */ -}}
{{- define "storage-auth-sidecar.name" -}}
{{- .Values.name | default .Release.Name -}}
{{- end -}}

{{- define "storage-auth-sidecar.image" -}}
{{- $image := .Values.image -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $image.repository $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $image.repository ($image.tag | default .Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{- /* What the schema of the values cannot say. */ -}}
{{- define "storage-auth-sidecar.check" -}}
{{- $settings := .Values.settings -}}
{{- if and (not $settings.upstreams) (not (dig "forwardAuth" "path" "" $settings)) -}}
{{- fail "settings.upstreams is needed, such as [{ prefix: /, url: http://storage }]" -}}
{{- end -}}
{{- if eq (int .Values.ports.data) (int .Values.ports.admin) -}}
{{- fail "ports.data and ports.admin must differ" -}}
{{- end -}}
{{- range $setting, $value := dict "listen" "data" "admin" "admin" -}}
{{- if dig $setting "port" "" $settings -}}
{{- fail (printf "set ports.%s instead of settings.%s.port: Services and policies follow it" $value $setting) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* The settings, with the files of the Secrets where they say nothing else. */ -}}
{{- define "storage-auth-sidecar.settings" -}}
{{- $etc := "/etc/storage-auth-sidecar" -}}
{{- $defaults := dict -}}
{{- if .Values.existingSecrets.tls -}}
{{- $tls := dict "certFile" (printf "%s/tls/tls.crt" $etc) "keyFile" (printf "%s/tls/tls.key" $etc) -}}
{{- $_ := set $defaults "listen" (dict "tls" $tls) -}}
{{- end -}}
{{- if .Values.existingSecrets.postgres -}}
{{- $_ := set $defaults "credentials" (dict "postgres" (dict "urlFile" (printf "%s/postgres/url" $etc))) -}}
{{- else if not (or .Values.verifyOnly (dig "credentials" "postgres" "" .Values.settings)) -}}
{{- $_ := set $defaults "credentials" (dict "file" (printf "%s/credentials/credentials.yaml" $etc)) -}}
{{- $_ := set $defaults "revocations" (dict "file" (printf "%s/credentials/revocations.yaml" $etc)) -}}
{{- end -}}
{{- mustMergeOverwrite $defaults (deepCopy .Values.settings) | toYaml -}}
{{- end -}}

{{- /* Names, in JSON, of the Secrets that a pod mounts: keys, credentials, tls, postgres. */ -}}
{{- define "storage-auth-sidecar.secrets" -}}
{{- $name := include "storage-auth-sidecar.name" . -}}
{{- $existing := .Values.existingSecrets -}}
{{- $settings := include "storage-auth-sidecar.settings" . | fromYaml -}}
{{- $secrets := dict -}}
{{- if not .Values.verifyOnly -}}
{{- $_ := set $secrets "keys" ($existing.keys | default (printf "%s-auth-keys" $name)) -}}
{{- if not (dig "credentials" "postgres" "" $settings) -}}
{{- $_ := set $secrets "credentials" ($existing.credentials | default (printf "%s-auth-credentials" $name)) -}}
{{- end -}}
{{- end -}}
{{- range $part := list "tls" "postgres" -}}
{{- with get $existing $part -}}{{- $_ := set $secrets $part . -}}{{- end -}}
{{- end -}}
{{- toJson $secrets -}}
{{- end -}}

{{- /* Changes a container of the manifests by the values. In and out: JSON. */ -}}
{{- define "storage-auth-sidecar.container" -}}
{{- $root := .root -}}
{{- $values := .root.Values -}}
{{- $container := .container -}}
{{- $settings := include "storage-auth-sidecar.settings" $root | fromYaml -}}
{{- $secrets := include "storage-auth-sidecar.secrets" $root | fromJson -}}
{{- $_ := set $container "image" (include "storage-auth-sidecar.image" $root) -}}
{{- $ports := dict "auth-data" $values.ports.data "auth-admin" $values.ports.admin -}}
{{- range $container.ports -}}
{{- $_ := set . "containerPort" (int (get $ports .name)) -}}
{{- end -}}
{{- $env := list -}}
{{- if not (dig "shutdown" "deadlineSeconds" "" $settings) -}}
{{- $lameDuck := dig "shutdown" "lameDuckSeconds" 5 $settings -}}
{{- $deadline := sub (sub (int $values.terminationGracePeriodSeconds) 15) (int $lameDuck) -}}
{{- $env = append $env (dict "name" "SIDECAR_SHUTDOWN_DEADLINE_SECONDS" "value" (toString (max 1 $deadline))) -}}
{{- end -}}
{{- if ne (int $values.ports.data) 8080 -}}
{{- $env = append $env (dict "name" "SIDECAR_LISTEN_PORT" "value" (toString $values.ports.data)) -}}
{{- end -}}
{{- if ne (int $values.ports.admin) 8081 -}}
{{- $env = append $env (dict "name" "SIDECAR_ADMIN_PORT" "value" (toString $values.ports.admin)) -}}
{{- end -}}
{{- $_ := set $container "env" (concat $env $values.extraEnv) -}}
{{- $mounts := list -}}
{{- range $container.volumeMounts -}}
{{- $part := base .mountPath -}}
{{- if or (eq $part "config") (hasKey $secrets $part) -}}{{- $mounts = append $mounts . -}}{{- end -}}
{{- end -}}
{{- range $part := list "tls" "postgres" -}}
{{- if hasKey $secrets $part -}}
{{- $path := printf "/etc/storage-auth-sidecar/%s" $part -}}
{{- $mount := dict "name" (printf "storage-auth-sidecar-%s" $part) "mountPath" $path "readOnly" true -}}
{{- $mounts = append $mounts $mount -}}
{{- end -}}
{{- end -}}
{{- $_ := set $container "volumeMounts" (concat $mounts $values.extraVolumeMounts) -}}
{{- if dig "admin" "tls" "" $settings -}}
{{- range $probe := list "startupProbe" "readinessProbe" "livenessProbe" -}}
{{- $_ := set (get $container $probe).httpGet "scheme" "HTTPS" -}}
{{- end -}}
{{- end -}}
{{- mustMergeOverwrite $container $values.container | toJson -}}
{{- end -}}

{{- /* The volumes of a pod, in JSON: those of the manifests that are needed, with this release's names. */ -}}
{{- define "storage-auth-sidecar.podVolumes" -}}
{{- $root := .root -}}
{{- $name := include "storage-auth-sidecar.name" $root -}}
{{- $secrets := include "storage-auth-sidecar.secrets" $root | fromJson -}}
{{- $volumes := list -}}
{{- range $volume := .volumes -}}
{{- if $volume.configMap -}}
{{- $_ := set $volume.configMap "name" (printf "%s-auth" $name) -}}
{{- $volumes = append $volumes $volume -}}
{{- else -}}
{{- $part := splitList "-" $volume.name | last -}}
{{- with get $secrets $part -}}
{{- $_ := set $volume.secret "secretName" . -}}
{{- $volumes = append $volumes $volume -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $part := list "tls" "postgres" -}}
{{- with get $secrets $part -}}
{{- /* 288 is 0440. */ -}}
{{- $secret := dict "secretName" . "defaultMode" 288 -}}
{{- $volumes = append $volumes (dict "name" (printf "storage-auth-sidecar-%s" $part) "secret" $secret) -}}
{{- end -}}
{{- end -}}
{{- toJson (dict "volumes" (concat $volumes $root.Values.extraVolumes)) -}}
{{- end -}}

{{- /* A NetworkPolicy of the manifests with the ports of the values, each by its own rule. In and out: JSON. */ -}}
{{- define "storage-auth-sidecar.networkPolicy" -}}
{{- $values := .root.Values -}}
{{- $ports := dict "8080" $values.ports.data "8081" $values.ports.admin -}}
{{- range $rule := .policy.spec.ingress -}}
{{- range $rule.ports -}}
{{- $isAdmin := eq (int .port) 8081 -}}
{{- $_ := set . "port" (int (get $ports (toString .port))) -}}
{{- if $isAdmin -}}
{{- $prometheus := dict "kubernetes.io/metadata.name" $values.networkPolicy.prometheusNamespace -}}
{{- $_ := set (first $rule.from).namespaceSelector "matchLabels" $prometheus -}}
{{- $_ := set $rule "from" (concat $rule.from $values.networkPolicy.extraAdminClients) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson .policy -}}
{{- end -}}

{{- define "storage-auth-sidecar.initContainers" -}}
{{- $patch := .Files.Get "files/sidecar.patch.yaml" | fromYaml -}}
{{- $container := first $patch.spec.template.spec.initContainers -}}
{{- include "storage-auth-sidecar.container" (dict "root" . "container" $container) | fromJson | list | toYaml -}}
{{- end -}}

{{- define "storage-auth-sidecar.volumes" -}}
{{- $patch := .Files.Get "files/sidecar.patch.yaml" | fromYaml -}}
{{- $volumes := $patch.spec.template.spec.volumes -}}
{{- (include "storage-auth-sidecar.podVolumes" (dict "root" . "volumes" $volumes) | fromJson).volumes | toYaml -}}
{{- end -}}

{{- define "storage-auth-sidecar.terminationGracePeriodSeconds" -}}
{{- int .Values.terminationGracePeriodSeconds -}}
{{- end -}}

{{- define "storage-auth-sidecar.podLabels" -}}
storage-auth-sidecar: {{ include "storage-auth-sidecar.name" . }}-auth
{{- end -}}

{{- /* New settings roll out new pods. */ -}}
{{- define "storage-auth-sidecar.podAnnotations" -}}
checksum/storage-auth-sidecar: {{ include "storage-auth-sidecar.settings" . | sha256sum }}
{{- end -}}
