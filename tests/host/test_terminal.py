"""Lines on a narrow terminal, and in a pipe."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios

SCRIPT = "from fugu.host.terminal import print_lines; print_lines('ok   one: ' + 'word ' * 30 + '\\n  short')"


def printed(width: int) -> list[str]:
    """Lines as a terminal of a width shows them; a pipe if it is 0."""
    if not width:
        return subprocess.run(
            [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True
        ).stdout.splitlines()
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    subprocess.run([sys.executable, "-c", SCRIPT], stdout=theirs, check=True)
    os.close(theirs)
    text = os.read(ours, 65_536).decode()
    os.close(ours)
    return text.splitlines()


def test_a_line_is_broken_between_words_on_a_terminal_and_whole_in_a_pipe() -> None:
    whole = printed(0)
    assert len(whole) == 2
    narrow = printed(40)
    assert max(map(len, narrow)) <= 40
    assert all(line.startswith("     ") for line in narrow[1:-1])
    assert " ".join(narrow[0:-1]).split() == whole[0].split()
    assert narrow[-1] == whole[-1] == "  short"


def test_a_program_whose_output_and_error_are_closed_ends_as_any() -> None:
    program = "import sys; from fugu.host.terminal import run_program; sys.exit(run_program(lambda: print('x') or 3))"
    assert subprocess.run(["sh", "-c", '"$0" -c "$1" >&- 2>&-', sys.executable, program], check=False).returncode == 3
