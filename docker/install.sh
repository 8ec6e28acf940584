#!/bin/sh
# The steps that all images install Outrider by, each a layer of its own, the one that changes most often last:
#   install.sh environment TORCH_INDEX_URL [vllm]    a virtual environment in /opt/outrider with torch and all it needs
#   install.sh outrider                              Outrider itself into it
#   install.sh models                                the embedded pair, into $OUTRIDER_HOME
# The checkout is where this file's folder is; it is not written to. Nothing is installed whose SHA-256 is not in
# requirements/locked*.txt; TORCH_SHA256 is that of a torch which they do not know.
set -eu
source=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-python3} # of the base image
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1

locked() {
    /opt/outrider/bin/pip install --require-hashes "$@"
}

case ${1:-} in
environment)
    index=${2:-}
    locks=$source/requirements
    "$python" -m venv /opt/outrider
    locked -r "$locks/locked.txt"
    if [ -n "$index" ]; then # an index of torch's own has its build alone, which needs nothing else
        if [ -n "${TORCH_SHA256:-}" ]; then
            sed -n "s/^\(torch==[^ ]*\).*/\1 --hash=sha256:$TORCH_SHA256/p" "$locks/locked-torch.txt" > /tmp/torch.txt
            locked --index-url "$index" -r /tmp/torch.txt
            rm /tmp/torch.txt
        else
            locked --index-url "$index" -r "$locks/locked-torch.txt"
        fi
    else
        locked -r "$locks/locked-torch.txt" -r "$locks/locked-cuda.txt"
    fi
    if [ "${3:-torch}" = vllm ]; then
        locked -r "$locks/locked-cuda.txt" -r "$locks/locked-vllm.txt"
    fi
    /opt/outrider/bin/pip check
    ;;
outrider)
    build=$(mktemp -d)
    cp -R "$source/outrider" "$source/actors" "$source/serve_app" "$source/cluster" "$source/edge" \
        "$source/pyproject.toml" "$source/README.md" "$source/LICENSE" "$build"
    # Built by the setuptools of the environment: another one would be fetched without a hash.
    /opt/outrider/bin/pip install --no-deps --no-build-isolation "$build"
    rm -r "$build"
    ;;
models)
    /opt/outrider/bin/outrider models fetch
    ;;
*)
    echo "needs environment, outrider or models, found '${1:-}'" >&2
    exit 2
    ;;
esac
