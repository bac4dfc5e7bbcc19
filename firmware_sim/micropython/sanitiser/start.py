"""From an image to a running board: `run(read)` is all that `main.py` calls."""

import gc

from fugu.core import trust
from fugu.core.loading import JUDGES, release
from sanitiser.watchdog import watchdog

TRUST_FILE = "trust"
_THRESHOLD = 16384


def accepted(image, on_progress):
    """Return the stored trust, the image's own policies, and the policies to run: the stored ones, or the image's.

    OSError if the stored trust is damaged, RefusedError if the image's own policies may not run.
    """
    if hasattr(gc, "threshold"):
        gc.threshold(_THRESHOLD)  # if garbage is collected seldom, memory is fragmented
    from fugu.core.derived import check_policies

    trusted = trust.load(TRUST_FILE, image.ROOT)
    image_policies = check_policies(image.POLICIES, image, on_progress)
    policies = None
    if trusted.version >= image_policies[0].version:
        try:
            policies = check_policies(trusted.policies, image, on_progress)
        except trust.RefusedError as error:
            print("what was accepted before may not run any more:", error.detail)
    check_policies = None
    release(*JUDGES)
    return trusted, image_policies, image_policies if policies is None else policies


def board(image, read_sensor, clock=None):
    """Make an image's board, ready to run; from now on, its watchdog has to be fed."""
    feed = watchdog(image.BOARD)
    accepted_image = accepted(image, feed)
    from sanitiser.board import Board

    return Board(image, *accepted_image, read_sensor, feed, clock)


def run(read_sensor) -> None:
    """Run the image on this board, for ever; `read_sensor` is the `read` of `sanitiser.board.Board`."""
    import asyncio

    import image

    asyncio.run(board(image, read_sensor).run())
