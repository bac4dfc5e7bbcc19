#!/bin/sh
# Sets up .venv with one of the project's extras; installs what is missing of the system through apt.
# Usage: deploy/bootstrap.sh EXTRA [COMMAND=PACKAGE ...]      (run in the repository's folder)
set -eu
extra=$1
shift
python=${PYTHON:-python3}

apt_install() {
    command -v apt-get >/dev/null || { echo "please install: $*" >&2; exit 1; }
    sudo=""
    [ "$(id -u)" = 0 ] || sudo=sudo
    $sudo apt-get update -qq
    DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends "$@"
}

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed" >&2; exit 1; }
for wanted in "$@"; do
    # Debian keeps servers in /usr/sbin, which is not on every user's PATH.
    PATH=$PATH:/usr/sbin:/sbin command -v "${wanted%%=*}" >/dev/null || apt_install "${wanted#*=}"
done
if [ ! -x .venv/bin/python ]; then
    "$python" -c 'import ensurepip, venv' 2>/dev/null || apt_install python3-venv
    "$python" -m venv .venv
fi
if [ ! -f ".venv/$extra.done" ] || [ pyproject.toml -nt ".venv/$extra.done" ]; then
    echo "installing fugu-edge[$extra] into .venv ..."
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --editable ".[$extra]"
    touch ".venv/$extra.done"
fi
