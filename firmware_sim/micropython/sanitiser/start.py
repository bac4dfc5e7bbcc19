"""From an image to a running board: `run(read)` is all that `main.py` calls.

What judges a policy is loaded first, and let go of before the rest is loaded: together they need more memory than a
small board has.
"""

import gc
import sys

_JUDGES = ("compiled", "guarantee", "ed25519")
_SIGNED = "policy.signed"
_DOMAIN = b"fugu-edge/2/compiled\0"
_KEY, _SIGNATURE = 32, 64


def accepted(image):
    """The policy to run: a newer one from the file `policy.signed`, if it may run, or the image's own.

    Raises:
        PolicyError, GuaranteeError: the image's own may not run.
    """
    policy = _judged(image)
    for name in _JUDGES:
        if "sanitiser." + name in sys.modules:
            del sys.modules["sanitiser." + name]
        if hasattr(sys.modules["sanitiser"], name):
            delattr(sys.modules["sanitiser"], name)
    gc.collect()
    return policy


def _judged(image):
    from sanitiser.compiled import read_policy
    from sanitiser.guarantee import GuaranteeError, check, keeps
    from sanitiser.policy import PolicyError

    pinned = read_policy(image.POLICY)
    check(pinned, image.CEILING)
    try:
        with open(_SIGNED, "rb") as file:
            data = file.read()
    except OSError:
        return pinned
    try:
        policy = read_policy(_signed(data, image))
        if policy.version <= pinned.version:
            raise PolicyError("no newer than the image's own")
        keeps(policy, pinned)
        check(policy, image.CEILING)
    except (PolicyError, GuaranteeError) as error:
        print("policy.signed is refused:", error)
        return pinned
    return policy


def _signed(data: bytes, image) -> bytes:
    """The compiled policy in a signed one: a count, so many public keys with their signatures, and the policy.

    Raises:
        PolicyError: too few of the image's signers have signed it.
    """
    from sanitiser.ed25519 import verify
    from sanitiser.policy import PolicyError

    count, size = data[0] if data else 0, _KEY + _SIGNATURE
    body = data[1 + count * size :]
    valid = set()
    for i in range(min(count, 16)):
        at = 1 + i * size
        key, signature = data[at : at + _KEY], data[at + _KEY : at + size]
        if key in image.SIGNERS and key not in valid and verify(key, _DOMAIN + body, signature):
            valid.add(key)
    if not image.SIGNERS or len(valid) < max(1, image.THRESHOLD):
        raise PolicyError("too few of those who may sign have signed it")
    return body


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
