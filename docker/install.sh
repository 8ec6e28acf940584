#!/bin/sh
# The steps that all images install Outrider by, each a layer of its own, the one that changes most often last:
#   install.sh environment TORCH_INDEX_URL [EXTRA ...]   a virtual environment in /opt/outrider with torch and all it needs
#   install.sh outrider                              Outrider itself into it
#   install.sh models                                the embedded pair, into $OUTRIDER_HOME
# The checkout is where this file's folder is; it is not written to.
set -eu
source=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-python3.11}
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1

case ${1:-} in
environment)
    extras=$(shift; [ $# -eq 0 ] || shift; echo "$*")
    "$python" -m venv /opt/outrider
    # Its exact version first, so that the index chooses its build. An empty index is pip's own.
    /opt/outrider/bin/pip install ${2:+--index-url "$2"} "$(grep '^torch==' "$source/constraints.txt")"
    # shellcheck disable=SC2086  # each is a word
    /opt/outrider/bin/python "$source/docker/requirements.py" "$source/pyproject.toml" $extras > /tmp/requirements.txt
    /opt/outrider/bin/pip install -c "$source/constraints.txt" -r /tmp/requirements.txt
    rm /tmp/requirements.txt
    ;;
outrider)
    build=$(mktemp -d)
    cp -R "$source/outrider" "$source/actors" "$source/serve_app" "$source/cluster" \
        "$source/pyproject.toml" "$source/README.md" "$source/LICENSE" "$build"
    /opt/outrider/bin/pip install --no-deps "$build"
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
