"""From an image to a running board: `run(read)` is all that `main.py` calls.

What judges a policy is loaded first, and let go of before the rest is loaded: together they need more memory than a
small board has.
"""

import gc
import sys

_JUDGES = ("compiled", "guarantee")


def accepted(image):
    """The policy of an image, its guarantee derived anew.

    Raises:
        PolicyError, GuaranteeError: it may not run.
    """
    from sanitiser.compiled import read_policy
    from sanitiser.guarantee import check

    policy = read_policy(image.POLICY)
    check(policy, image.CEILING)
    del read_policy, check
    for name in _JUDGES:
        del sys.modules["sanitiser." + name]
        if hasattr(sys.modules["sanitiser"], name):
            delattr(sys.modules["sanitiser"], name)
    gc.collect()
    return policy


def run(read) -> None:
    """Run the image on this board, for ever.

    Args:
        read: the sensor: gives an integer, or none if there is no reading; does not wait.
    """
    import image

    policy = accepted(image)
    import asyncio

    from sanitiser.board import Board

    asyncio.run(Board(image, policy, read).run())
