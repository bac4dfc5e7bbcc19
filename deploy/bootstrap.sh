#!/bin/sh
# Sets up .venv with one of the project's extras, by version and hash where deploy/constraints has a file of that name;
# installs what is missing of the system through apt, and starts nothing of it, now or later: what runs here starts
# servers of its own.
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
    policy=/usr/sbin/policy-rc.d
    if [ ! -e "$policy" ]; then
        trap '$sudo rm -f "$policy"' EXIT
        trap 'exit 130' INT HUP TERM
        printf '#!/bin/sh\nexit 101\n' | $sudo tee "$policy" >/dev/null
        $sudo chmod 755 "$policy"
    fi
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"
    for unit in "$@"; do
        [ ! -d /run/systemd/system ] || $sudo systemctl disable --quiet "$unit" 2>/dev/null || true
    done
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
pins=deploy/constraints/$extra.txt
if [ ! -f ".venv/$extra.done" ] || [ -n "$(find pyproject.toml "$pins" -newer ".venv/$extra.done" 2>/dev/null)" ]; then
    echo "installing fugu-edge[$extra] into .venv ..."
    pip() { .venv/bin/python -m pip install --quiet --disable-pip-version-check "$@"; }
    if [ -f "$pins" ]; then
        pip --no-deps --require-hashes -r deploy/constraints/build.txt -r "$pins"
        pip --no-deps --no-build-isolation --editable .
    else
        pip --editable ".[$extra]"
    fi
    touch ".venv/$extra.done"
fi
