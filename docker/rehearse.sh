#!/bin/sh
# Carry out what docker/cpu.Dockerfile installs, in a Debian of its own, without Docker. As root:
#   docker/rehearse.sh FOLDER [TORCH_INDEX_URL]
# FOLDER gets some 4 GB and is left behind. The machine's own pip configuration is used, if it has one.
set -eu
folder=${1:?needs a folder for the Debian to be made in}
index=${2-https://download.pytorch.org/whl/cpu}
source=$(cd "$(dirname "$0")/.." && pwd)

debootstrap --variant=minbase --include=ca-certificates bookworm "$folder"
mkdir "$folder/src"
(cd "$source" && git archive HEAD) | tar -x -C "$folder/src"
cp /etc/resolv.conf "$folder/etc/resolv.conf"
cp /etc/ssl/certs/ca-certificates.crt "$folder/etc/ssl/certs/ca-certificates.crt"
if [ -e /etc/pip.conf ]; then cp /etc/pip.conf "$folder/etc/pip.conf"; fi
if [ -d "${PIP_FIND_LINKS:-}" ]; then # wheels of the machine's own
    mkdir -p "$folder$PIP_FIND_LINKS"
    cp -R "$PIP_FIND_LINKS/." "$folder$PIP_FIND_LINKS"
fi

inside() {
    chroot "$folder" env OUTRIDER_HOME=/opt/models HOME=/root \
        PATH=/opt/outrider/bin:/usr/sbin:/usr/bin:/sbin:/bin PYTHON=python3.11 "$@"
}
inside apt-get update
inside apt-get install --yes --no-install-recommends curl python3.11-venv # Debian 12's own is the images' 3.11
inside useradd --uid 10001 --create-home outrider
inside /src/docker/install.sh environment "$index"
inside /src/docker/install.sh outrider
inside /src/docker/install.sh models
# As the user that images run as, from the installed package alone.
inside setpriv --reuid 10001 --regid 10001 --clear-groups sh -c 'cd /; outrider config check && outrider models fetch'
