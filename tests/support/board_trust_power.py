"""Runs under MicroPython: power is cut at every write while a board stores what it has accepted.

Prints how many cuts there were, and after how many of them the old and the new file were found.
"""

from fugu.core.trust import TrustState, load
from simulated.flash import BLOCK, Flash, make, mount, unmount

BLOCKS = 64
ROOT = b"root" * 300


def trusted(version):
    state = TrustState(ROOT).with_changes(version=version, policies=[bytes([version]) * 700, b"other"], time=version)
    return state.with_changes(
        stopped=version, valid_until=version + 9, silent_then=version == 2, digest=b"%32d" % version
    )


def same(first, other):
    names = ("root", "version", "digest", "policies", "valid_until", "silent_then", "time", "stopped")
    return all(getattr(first, name) == getattr(other, name) for name in names)


def main():
    fresh = bytearray(BLOCK * BLOCKS)
    device = Flash(fresh)
    make(device)
    mount(device)
    trusted(1).store("trust")
    unmount()
    cuts, starts, n = 0, [0, 0], 0
    while True:
        done = False
        for torn in (False, True):
            flash = Flash(bytearray(fresh), n, torn)
            mount(flash)
            try:
                trusted(2).store("trust")
                done = True
            except OSError:
                pass
            unmount()
            again = Flash(flash.data)
            mount(again)
            now = load("trust", ROOT)
            assert now.version == 2 or not done
            assert same(now, trusted(now.version)), "half a file"
            starts[now.version - 1] += 1
            trusted(2).store("trust")  # what is left of the other one is in nobody's way
            assert same(load("trust", ROOT), trusted(2))
            other = load("trust", b"another root")
            assert (other.root, other.version, other.stopped) == (b"another root", 2, 0)
            unmount()
            cuts += 1
        if done:
            break
        n += 1
    print(cuts, *starts)


main()
