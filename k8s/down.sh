#!/bin/sh
# Ends an Outrider: first its responses, then its pods. It returns when none is left, or says which wait ran out. Redis,
# Secrets and the namespace stay: KubeRay clears a cluster's entries in Redis before it lets the cluster go.
#   k8s/down.sh [NAMESPACE [RAYSERVICE]]
set -eu
namespace=${1:-outrider}
service=${2:-outrider}

# Nothing new begins; what has begun ends within Serve's grace (600 s).
kubectl -n "$namespace" patch rayservice "$service" --type merge -p '{"spec": {"serveConfigV2": "applications: []"}}'
kubectl -n "$namespace" exec "service/$service-head-svc" -c ray-head -- outrider deploy --address auto --remove ||
    echo "the head does not answer: what runs has until its pods' grace ends" >&2
kubectl -n "$namespace" delete rayservice "$service" --timeout=5m
# With nothing to drain a head would still wait out RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S, for Serve's controller never leaves.
kubectl -n "$namespace" delete pod -l "app.kubernetes.io/part-of=$service,ray.io/node-type=head" --grace-period=30 --timeout=5m
kubectl -n "$namespace" wait --for=delete pod -l "app.kubernetes.io/part-of=$service" --timeout=20m
kubectl -n "$namespace" wait --for=delete raycluster -l "ray.io/originated-from-cr-name=$service" --timeout=20m
