"""Verification of Ed25519 signatures (RFC 8032), with SHA-512, in integers: slow, and needed once for a policy.

A board only verifies what is public, so nothing here has to take the same time for all keys.
"""

_P = (1 << 255) - 19
_ORDER = (1 << 252) + 27742317777372353535851937790883648493
_D = -121665 * pow(121666, _P - 2, _P) % _P
_ROOT = pow(2, (_P - 1) // 4, _P)
_MASK = (1 << 64) - 1


def verify(public: bytes, message: bytes, signature: bytes) -> bool:
    """Whether the holder of a key of 32 bytes has signed a message with these 64 bytes."""
    if len(public) != 32 or len(signature) != 64:
        return False
    key, commitment = _point(public), _point(signature[:32])
    scalar = int.from_bytes(signature[32:], "little")
    if key is None or commitment is None or scalar >= _ORDER:
        return False
    challenge = int.from_bytes(sha512(signature[:32] + public + message), "little") % _ORDER
    base = _point((4 * pow(5, _P - 2, _P) % _P).to_bytes(32, "little"))
    one, other = _times(scalar, base), _add(commitment, _times(challenge, key))
    return not (one[0] * other[2] - other[0] * one[2]) % _P and not (one[1] * other[2] - other[1] * one[2]) % _P


def _point(data: bytes):
    """A point in extended coordinates; none if the bytes are none."""
    y = int.from_bytes(data, "little")
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


def _add(one: tuple, other: tuple) -> tuple:
    a = (one[1] - one[0]) * (other[1] - other[0]) % _P
    b = (one[1] + one[0]) * (other[1] + other[0]) % _P
    c = 2 * one[3] * other[3] * _D % _P
    d = 2 * one[2] * other[2] % _P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % _P, g * h % _P, f * g % _P, e * h % _P


def _times(scalar: int, point: tuple) -> tuple:
    found = 0, 1, 1, 0
    while scalar:
        if scalar & 1:
            found = _add(found, point)
        point = _add(point, point)
        scalar >>= 1
    return found


def _constants(count: int, power: int) -> list:
    """The first 64 bits of the fractions of the square or cube roots of the first primes."""
    found, prime = [0] * count, 1
    for place in range(count):
        prime = _next_prime(prime)
        found[place] = _root(prime << (64 * power), power) & _MASK
    return found


def _next_prime(prime: int) -> int:
    while True:
        prime += 1
        if all(prime % other for other in range(2, _root(prime, 2) + 1)):
            return prime


def _root(value: int, power: int) -> int:
    """The largest integer whose power is not above a value."""
    low, high = 0, 1 << (len("%x" % value) * 4 // power + 1)
    while low < high:
        middle = (low + high + 1) // 2
        if middle**power <= value:
            low = middle
        else:
            high = middle - 1
    return low


def _turned(word: int, by: int) -> int:
    return (word >> by | word << (64 - by)) & _MASK


def sha512(message: bytes) -> bytes:
    """FIPS 180-4."""
    constants, state, words = _constants(80, 3), _constants(8, 2), [0] * 80
    data = message + b"\x80" + bytes((111 - len(message)) % 128) + (8 * len(message)).to_bytes(16, "big")
    for block in range(0, len(data), 128):
        for i in range(16):
            words[i] = int.from_bytes(data[block + 8 * i : block + 8 * i + 8], "big")
        for i in range(16, 80):
            two, fifteen = words[i - 2], words[i - 15]
            more = _turned(fifteen, 1) ^ _turned(fifteen, 8) ^ fifteen >> 7
            more += _turned(two, 19) ^ _turned(two, 61) ^ two >> 6
            words[i] = (words[i - 16] + words[i - 7] + more) & _MASK
        a, b, c, d, e, f, g, h = state
        for i in range(80):
            one = h + (_turned(e, 14) ^ _turned(e, 18) ^ _turned(e, 41)) + (e & f ^ ~e & _MASK & g)
            one += constants[i] + words[i]
            two = (_turned(a, 28) ^ _turned(a, 34) ^ _turned(a, 39)) + (a & b ^ a & c ^ b & c)
            h, g, f, e, d, c, b, a = g, f, e, (d + one) & _MASK, c, b, a, (one + two) & _MASK
        state = [(old + new) & _MASK for old, new in zip(state, (a, b, c, d, e, f, g, h))]
    return b"".join([word.to_bytes(8, "big") for word in state])
