"""Almost valid bytes, quickly made: for hundreds of thousands of frames."""

from random import Random

EXTREMES = (0, 1, 0x7F, 0x80, 0xFE, 0xFF)


def damaged(random: Random, valid: list[bytes]) -> bytes:
    """Return one of `valid` with one to three changes."""
    body = bytearray(random.choice(valid))
    for _ in range(random.randint(1, 3)):
        _damage(body, random, valid)
    return bytes(body)


def _damage(body: bytearray, random: Random, valid: list[bytes]) -> None:
    start = random.randrange(len(body) + 1)
    end = min(len(body), start + random.randrange(12))
    match random.randrange(7):
        case 0:
            if start < len(body):
                body[start] ^= 1 << random.randrange(8)
        case 1:
            del body[start:]
        case 2:
            del body[start:end]
        case 3:
            body += body[start:end]
        case 4:
            other = random.choice(valid)
            body[start:] = other[start:]
        case 5:
            extreme = random.choice(EXTREMES)
            body[start:end] = bytes([extreme]) * random.choice((1, 2, 4, 5, 8))
        case _:
            body[start:start] = random.randbytes(random.randint(1, 8))
