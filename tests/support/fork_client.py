"""Stands for `fugu` in a shell: asks for a fork that is it, hands signals on, and ends as that ends.

`python -I -S fork_client.py SOCKET PROGRAM WORD ...`: nothing is imported that would take long.
"""

import json
import os
import signal
import socket
import sys

MOST = 150_000
HANDED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def main() -> int:
    """The exit code of the fork, as a shell has it."""
    path, *words = sys.argv[1:]
    signal.pthread_sigmask(signal.SIG_BLOCK, HANDED_ON)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asking:
        asking.connect(path)
        request = {"words": words, "cwd": os.getcwd(), "env": dict(os.environ), "session": True}  # noqa: PTH109
        socket.send_fds(asking, [json.dumps(request).encode()], [0, 1, 2])
        process = int(asking.recv(MOST))
        for number in HANDED_ON:
            signal.signal(number, lambda received, _: os.kill(process, received))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDED_ON)
        status = int(asking.recv(MOST) or b"1")
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main())
