#!/usr/bin/env bash
# Proves on a real machine what tests without Docker, systemd as PID 1, a cluster or a GPU cannot. Each part names what
# it needs; without arguments all parts run whose tools are there.
# Usage: deploy/verify.sh [docker] [compose] [systemd] [kubernetes] [gpu]
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '\n==> %s\n' "$*"; }
die() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }

# wait_for SECONDS WHAT COMMAND…: until the command succeeds.
wait_for() {
    local left=$1 what=$2
    shift 2
    until "$@" >/dev/null 2>&1; do
        ((left-- > 0)) || die "$what"
        sleep 1
    done
}

docker_part() {
    say "docker: the default image builds, is healthy, and stops within its drain"
    docker build -f deploy/docker/Dockerfile -t llamaherd:verify .
    local id
    id=$(docker run --detach --rm --init --publish 127.0.0.1:18080:8080 llamaherd:verify)
    trap 'docker rm --force "$id" >/dev/null 2>&1 || true' RETURN
    wait_for 60 "the container is not healthy" \
        sh -c "[ \"\$(docker inspect --format '{{.State.Health.Status}}' $id)\" = healthy ]"
    docker logs "$id" 2>&1 | grep -q 'API key, shown this once' || die "no key was made on a public address"
    [ "$(curl --silent --output /dev/null --write-out '%{http_code}' http://127.0.0.1:18080/models)" = 401 ] ||
        die "models are listed without a key"
    docker exec "$id" llamaherd version
    docker stop --time 60 "$id"
}

compose_part() {
    say "compose: gateway, Prometheus and Grafana start; Prometheus scrapes with its own key"
    local files=(-f deploy/compose/compose.yaml)
    docker compose "${files[@]}" config --quiet
    docker compose "${files[@]}" up --build --detach --wait
    trap 'docker compose "${files[@]}" down' RETURN
    wait_for 90 "Prometheus does not scrape the gateway" \
        sh -c "curl --silent 'http://127.0.0.1:9090/api/v1/query?query=up\{job=\"llamaherd\"\}' | grep -q '\"1\"\]'"
    wait_for 60 "Grafana does not answer" curl --fail --silent http://127.0.0.1:3000/api/health
    docker compose "${files[@]}" logs keys
}

systemd_part() {
    say "systemd: the unit starts, is watched, reloads, and drains (installs into /etc/systemd/system; needs root)"
    [ -x /opt/llamaherd/bin/llamaherd ] || die "install first: python3 -m venv /opt/llamaherd && /opt/llamaherd/bin/pip install ."
    install -D -m 0644 deploy/systemd/llamaherd.service deploy/systemd/llamaherd.socket -t /etc/systemd/system
    install -D -m 0644 deploy/systemd/llamaherd.env -t /etc/llamaherd
    install -d /srv/models
    systemctl daemon-reload
    systemctl start llamaherd.socket llamaherd.service
    systemctl show llamaherd --property=StatusText --property=WatchdogUSec --property=NotifyAccess
    curl --fail --silent http://127.0.0.1:8080/ready
    systemctl reload llamaherd
    kill -STOP "$(systemctl show llamaherd --property=MainPID --value)"
    wait_for 90 "the watchdog did not restart a gateway that stands still" \
        sh -c 'journalctl --unit llamaherd --since -3min | grep -qi watchdog'
    wait_for 60 "the gateway did not come back" curl --fail --silent http://127.0.0.1:8080/ready
    systemctl stop llamaherd.service llamaherd.socket
    [ "$(systemctl show llamaherd --property=Result --value)" = success ] || die "the stop was not clean"
    systemd-analyze security llamaherd.service | tail -n 1
}

kubernetes_part() {
    say "kubernetes: the API server accepts the manifests (nothing is created)"
    kubectl create namespace llamaherd --dry-run=client --output yaml | kubectl apply --filename -
    kubectl apply --kustomize deploy/kubernetes --dry-run=server
}

gpu_part() {
    say "gpu: the CUDA image sees the devices, and places all layers of a model on them"
    docker compose -f deploy/compose/compose.yaml --profile gpu build gateway-gpu
    docker run --rm --gpus all llamaherd:cuda13 version
    [ -n "${MODEL:-}" ] || die "set MODEL to a GGUF file"
    docker run --rm --gpus all --volume "$(realpath "$MODEL"):/models/model.gguf:ro" llamaherd:cuda13 \
        check --models-dir /models --n-gpu-layers 999
}

parts=("$@")
if [ ${#parts[@]} = 0 ]; then
    if docker info >/dev/null 2>&1; then parts+=(docker compose); fi
    if [ -d /run/systemd/system ] && [ "$(id -u)" = 0 ]; then parts+=(systemd); fi
    if kubectl version >/dev/null 2>&1; then parts+=(kubernetes); fi
    if docker info >/dev/null 2>&1 && command -v nvidia-smi >/dev/null; then parts+=(gpu); fi
    [ ${#parts[@]} -gt 0 ] || die "none of Docker, systemd as PID 1 and kubectl is here"
fi
for part in "${parts[@]}"; do
    "${part}_part"
done
say "all parts passed: ${parts[*]}"
