"""Flash memory, in RAM or in a file of the host, as a block device for littlefs; it can fail and lose its power."""

import os

import vfs

BLOCK = 512
_FAILED = 5


class Flash:
    """A block device in RAM; `data` are its bytes, whole blocks.

    After `most` writes and erasures (None: no end) the power goes, in the middle of that write if `torn`. `failing` of
    the next writes fail. `writes` counts writes and erasures, `programmed` and `erased` their bytes and blocks.
    """

    def __init__(self, data, most=None, torn=False) -> None:
        self.data, self.left, self.torn = data, most, torn
        self.failing = self.writes = self.programmed = self.erased = 0
        self.dead = False

    def cut(self) -> None:
        """The power is gone: nothing works any more, also when the garbage collector closes what was open."""
        self.dead = True

    def get(self, at: int, buffer) -> None:
        buffer[:] = self.data[at : at + len(buffer)]

    def put(self, at: int, buffer) -> None:
        self.data[at : at + len(buffer)] = buffer

    def size(self) -> int:
        return len(self.data)

    def _works(self) -> bool:
        if self.dead:
            return False
        self.writes += 1
        if self.failing:
            self.failing -= 1
            return False
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                self.cut()
                return False
        return True

    def readblocks(self, block, buffer, offset=0):
        if self.dead:
            return -_FAILED
        self.get(block * BLOCK + offset, buffer)
        return 0

    def writeblocks(self, block, buffer, offset=0):
        at = block * BLOCK + offset
        if self.left == 0 and self.torn:
            self.put(at, buffer[: len(buffer) // 2])
        if not self._works():
            return -_FAILED
        self.put(at, buffer)
        self.programmed += len(buffer)
        return 0

    def ioctl(self, operation, argument):
        if operation == 4:
            return self.size() // BLOCK
        if operation == 5:
            return BLOCK
        if operation == 6:
            if not self._works():
                return -_FAILED
            self.put(argument * BLOCK, b"\xff" * BLOCK)
            self.erased += 1
        return 0


class FileFlash(Flash):
    """A block device in a file of the host, opened without a buffer, which outlives the process that `on_cut` ends."""

    def __init__(self, file, on_cut) -> None:
        super().__init__(None)
        self._file = file
        self.cut = on_cut

    def get(self, at: int, buffer) -> None:
        self._file.seek(at)
        self._file.readinto(buffer)

    def put(self, at: int, buffer) -> None:
        self._file.seek(at)
        self._file.write(buffer)

    def size(self) -> int:
        return self._file.seek(0, 2)


def make(device) -> None:
    vfs.VfsLfs2.mkfs(device, progsize=16, readsize=16)


def mount(device, where: str = "/flash") -> None:
    """Let littlefs have a device, and work in it."""
    vfs.mount(vfs.VfsLfs2(device, progsize=16, readsize=16), where)
    os.chdir(where)


def unmount(where: str = "/flash") -> None:
    os.chdir("/")
    vfs.umount(where)
