{{- /* Called with this chart's context; in a chart that depends on it: index .Subcharts "storage-auth-sidecar". */ -}}
{{- define "storage-auth-sidecar.name" -}}
{{- .Values.name | default .Release.Name -}}
{{- end -}}

{{- /* A file of the manifests with this release's image and ports. */ -}}
{{- define "storage-auth-sidecar.file" -}}
{{- $image := .root.Values.image -}}
{{- $version := ternary (printf "@%s" $image.digest) (printf ":%s" ($image.tag | default .root.Chart.AppVersion)) (ne $image.digest "") -}}
{{- .root.Files.Get (printf "files/%s" .file)
  | replace (printf "storage-auth-sidecar:%s" .root.Chart.AppVersion) (print $image.repository $version)
  | replace "8080" (toString .root.Values.ports.data)
  | replace "8081" (toString .root.Values.ports.admin) -}}
{{- end -}}

{{- /* Changes a container, in JSON, by the values. */ -}}
{{- define "storage-auth-sidecar.container" -}}
{{- $container := .container -}}
{{- with .root.Values -}}
{{- range $name, $port := dict "SIDECAR_LISTEN_PORT" .ports.data "SIDECAR_ADMIN_PORT" .ports.admin -}}
{{- if not (has (int $port) (list 8080 8081)) -}}
{{- $_ := set $container "env" (append ($container.env | default list) (dict "name" $name "value" (toString $port))) -}}
{{- end -}}
{{- end -}}
{{- if .verifyOnly -}}
{{- $_ := set $container "volumeMounts" (list (first $container.volumeMounts)) -}}
{{- end -}}
{{- mustMergeOverwrite $container .container | toJson -}}
{{- end -}}
{{- end -}}

{{- define "storage-auth-sidecar.initContainers" -}}
{{- $patch := include "storage-auth-sidecar.file" (dict "root" . "file" "sidecar.patch.yaml") | fromYaml -}}
{{- $container := first $patch.spec.template.spec.initContainers -}}
{{- include "storage-auth-sidecar.container" (dict "root" . "container" $container) | fromJson | list | toYaml -}}
{{- end -}}

{{- /* Names of the ConfigMap and the Secrets, for the volumes of a pod, in JSON. */ -}}
{{- define "storage-auth-sidecar.named" -}}
{{- $name := include "storage-auth-sidecar.name" .root -}}
{{- $volumes := list -}}
{{- range $volume := .volumes -}}
{{- if $volume.configMap -}}
{{- $_ := set $volume.configMap "name" (printf "%s-auth" $name) -}}
{{- else if hasSuffix "keys" $volume.name -}}
{{- $_ := set $volume.secret "secretName" ($.root.Values.keysSecret | default (printf "%s-auth-keys" $name)) -}}
{{- else -}}
{{- $_ := set $volume.secret "secretName" ($.root.Values.credentialsSecret | default (printf "%s-auth-credentials" $name)) -}}
{{- end -}}
{{- if or $volume.configMap (not $.root.Values.verifyOnly) -}}{{- $volumes = append $volumes $volume -}}{{- end -}}
{{- end -}}
{{- toJson (dict "volumes" $volumes) -}}
{{- end -}}

{{- define "storage-auth-sidecar.volumes" -}}
{{- $patch := .Files.Get "files/sidecar.patch.yaml" | fromYaml -}}
{{- (include "storage-auth-sidecar.named" (dict "root" . "volumes" $patch.spec.template.spec.volumes) | fromJson).volumes | toYaml -}}
{{- end -}}

{{- define "storage-auth-sidecar.podLabels" -}}
storage-auth-sidecar: {{ include "storage-auth-sidecar.name" . }}-auth
{{- end -}}

{{- /* New settings roll out new pods. */ -}}
{{- define "storage-auth-sidecar.podAnnotations" -}}
checksum/storage-auth-sidecar: {{ toJson .Values.settings | sha256sum }}
{{- end -}}
