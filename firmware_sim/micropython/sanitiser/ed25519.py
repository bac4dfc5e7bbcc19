"""Verification of Ed25519 signatures (RFC 8032), with SHA-512, in integers: slow, and needed once for a policy.

A board only verifies what is public, so nothing here has to take the same time for all keys.
"""

_P = (1 << 255) - 19
_ORDER = (1 << 252) + 27742317777372353535851937790883648493
_D = -121665 * pow(121666, _P - 2, _P) % _P
_ROOT = pow(2, (_P - 1) // 4, _P)
_MASK = (1 << 64) - 1
_cubes = b""


def verify(public: bytes, message: tuple, signature: bytes, on_progress) -> bool:
    """True if a key (32 bytes) has signed a message, in parts, by `signature` (64 bytes).

    `on_progress` is called often.
    """
    if len(public) != 32 or len(signature) != 64:
        return False
    key, commitment = _point(public), _point(signature[:32])
    scalar = int.from_bytes(signature[32:], "little")
    if key is None or commitment is None or scalar >= _ORDER:
        return False
    challenge = int.from_bytes(sha512((signature[:32], public) + message, on_progress), "little") % _ORDER
    base = _point((4 * pow(5, _P - 2, _P) % _P).to_bytes(32, "little"))
    minus_key = _P - key[0], key[1], 1, _P - key[3]
    base_minus_key, point = _add(base, minus_key), (0, 1, 1, 0)
    for bit in range(252, -1, -1):
        on_progress()
        point = _double(point)
        scalar_bit, challenge_bit = scalar >> bit & 1, challenge >> bit & 1
        if scalar_bit or challenge_bit:
            point = _add(point, (base_minus_key if challenge_bit else base) if scalar_bit else minus_key)
    return not (point[0] - commitment[0] * point[2]) % _P and not (point[1] - commitment[1] * point[2]) % _P


def _point(encoded: bytes):
    """Decode a point, in extended coordinates; None if the bytes are no point."""
    y = int.from_bytes(encoded, "little")
    sign, y = y >> 255, y & ((1 << 255) - 1)
    if y >= _P:
        return None
    square = (y * y - 1) * pow(_D * y * y + 1, _P - 2, _P) % _P
    x = pow(square, (_P + 3) // 8, _P)
    if (x * x - square) % _P:
        x = x * _ROOT % _P
    if (x * x - square) % _P or (not x and sign):
        return None
    if x & 1 != sign:
        x = _P - x
    return x, y, 1, x * y % _P


def _add(first: tuple, other: tuple) -> tuple:
    a = (first[1] - first[0]) * (other[1] - other[0]) % _P
    b = (first[1] + first[0]) * (other[1] + other[0]) % _P
    c = 2 * first[3] * other[3] * _D % _P
    d = 2 * first[2] * other[2] % _P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % _P, g * h % _P, f * g % _P, e * h % _P


def _double(point: tuple) -> tuple:
    x, y, z, _ = point
    a, b = x * x, y * y
    h, g = a + b, a - b
    e, f = h - (x + y) * (x + y), 2 * z * z + g
    return e * f % _P, g * h % _P, f * g % _P, e * h % _P


def _constants(count: int, power: int) -> bytes:
    """Return the first 8 bytes of the fractions of the square or cube roots of the first `count` primes."""
    constants, prime = bytearray(8 * count), 1
    for offset in range(0, 8 * count, 8):
        prime = _next_prime(prime)
        constants[offset : offset + 8] = (_root(prime << (64 * power), power) & _MASK).to_bytes(8, "big")
    return bytes(constants)


def _to_words(block: bytes) -> list:
    return [int.from_bytes(block[offset : offset + 8], "big") for offset in range(0, len(block), 8)]


def _next_prime(prime: int) -> int:
    while True:
        prime += 1
        if all(prime % divisor for divisor in range(2, _root(prime, 2) + 1)):
            return prime


def _root(value: int, power: int) -> int:
    low, high = 0, 1 << (len("%x" % value) * 4 // power + 1)
    while low < high:
        middle = (low + high + 1) // 2
        if middle**power <= value:
            low = middle
        else:
            high = middle - 1
    return low


def _rotated(word: int, bits: int) -> int:
    return (word >> bits | word << (64 - bits)) & _MASK


def _blocks(message: tuple):
    """Yield blocks of 128 bytes, the last padded; small pieces, as a board's free memory may be fragmented."""
    message_length, pending = 0, b""
    for part in message:
        message_length += len(part)
    end = b"\x80" + bytes((111 - message_length) % 128) + (8 * message_length).to_bytes(16, "big")
    for part in message + (end,):
        for offset in range(0, len(part), 128):
            pending += part[offset : offset + 128]
            if len(pending) >= 128:
                yield pending[:128]
                pending = pending[128:]


def sha512(message: tuple, on_progress) -> bytes:
    """Return the SHA-512 hash (FIPS 180-4) of a message in parts."""
    global _cubes
    if not _cubes:
        _cubes = _constants(80, 3)
    state = _to_words(_constants(8, 2))
    for block in _blocks(message):
        on_progress()
        words = _to_words(block)  # the last 16 of 80
        a, b, c, d, e, f, g, h = state
        for i in range(80):
            slot = i & 15
            if i > 15:
                two, fifteen = words[i - 2 & 15], words[i - 15 & 15]
                schedule = _rotated(fifteen, 1) ^ _rotated(fifteen, 8) ^ fifteen >> 7
                schedule += _rotated(two, 19) ^ _rotated(two, 61) ^ two >> 6
                words[slot] = (words[slot] + words[i - 7 & 15] + schedule) & _MASK
            word = h + (_rotated(e, 14) ^ _rotated(e, 18) ^ _rotated(e, 41)) + (e & f ^ ~e & _MASK & g)
            word += int.from_bytes(_cubes[8 * i : 8 * i + 8], "big") + words[slot]
            two = (_rotated(a, 28) ^ _rotated(a, 34) ^ _rotated(a, 39)) + (a & b ^ a & c ^ b & c)
            h, g, f, e, d, c, b, a = g, f, e, (d + word) & _MASK, c, b, a, (word + two) & _MASK
        state = [(old + new) & _MASK for old, new in zip(state, (a, b, c, d, e, f, g, h))]
    return b"".join([word.to_bytes(8, "big") for word in state])
