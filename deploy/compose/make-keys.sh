#!/bin/sh
# Makes the keys of the compose stack once: one for people, one with which Prometheus may only read numbers, and
# Grafana's password. Each file is readable by its one user alone. Usage: make-keys.sh FOLDER
set -eu
umask 077
folder=${1:?usage: make-keys.sh FOLDER}
mkdir -p "$folder"

random() {
    od -An -N32 -tx1 /dev/urandom | tr -d ' \n'
}

# give FILE UID: hand a file to the user of another container; needs root, as in the compose file.
give() {
    chmod 0400 "$1"
    if [ "$(id -u)" = 0 ]; then chown "$2" "$1"; fi
}

if [ ! -s "$folder/api-keys" ]; then
    people="lh-$(random)"
    observer="lh-$(random)"
    printf '%s' "$observer" >"$folder/observe-key"
    random >"$folder/grafana-password"
    printf '%s name=people\n%s name=prometheus scopes=observe\n' "$people" "$observer" >"$folder/.api-keys"
    give "$folder/observe-key" 65534
    give "$folder/grafana-password" 472
    give "$folder/.api-keys" 10001
    # Last: with this file in place everything is.
    mv "$folder/.api-keys" "$folder/api-keys"
    echo "API key: $people"
    echo "Grafana: admin / $(cat "$folder/grafana-password")"
    echo "They are shown this once, and kept in the volume 'keys'."
fi
chmod 0711 "$folder"
