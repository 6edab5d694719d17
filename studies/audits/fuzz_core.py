"""The rules for every fuzzing target, and the judgement of inputs.

An input is a string of bytes. A target turns it into a file, a plan, a URL, a table or a command line for the library,
which must accept or refuse it. A *finding* is anything else: an exception of an undocumented class, a refusal that is
not one sentence, a planted value in a message, a budget charged for a refusal, a hang.
"""

from __future__ import annotations

import hashlib
import linecache
import random
import re
import signal
import struct
import time
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

#: Values planted in tables, which no message may contain.
SECRET_NUMBER, SECRET_TEXT = 73195.0862, "SECRETZ"
_SECRETS = ("73195.08", "73195.1", SECRET_TEXT)
#: The largest length of a message.
LONGEST = 700
#: Numbers that often cause faults.
NUMBERS = (
    *(0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 1e-5, 1e-300, 5e-324, 1e300, -1e300, 1.7976931348623157e308, 3.4e38, 1e19),
    *(float("inf"), float("-inf"), float("nan"), 2.0**53, 2.0**63, 1e-16, 0.999999999999, 1e5, 3.0),
)


class Hang(BaseException):
    """An input took longer than its target allows."""


class Broken(Exception):
    """An invariant of a target's own does not hold, in one sentence."""


class Target(Protocol):
    """A target. ``run`` returns whether the input was accepted, or raises the library's refusal."""

    name: str
    #: Seconds for one input.
    patience: float
    #: The documented refusals.
    refusals: tuple[type[Exception], ...]
    #: Modules whose branches guide the fuzzer.
    guided_by: tuple[str, ...]

    def seeds(self) -> list[bytes]: ...

    def run(self, data: bytes) -> bool: ...


@dataclass
class Tally:
    """Counts of a target's inputs; ``findings`` maps each finding to the first input that caused it."""

    inputs: int = 0
    refused: int = 0
    accepted: int = 0
    seconds: float = 0.0
    findings: dict[str, bytes] = field(default_factory=dict)


class Draw:
    """Choices made by bytes, so that a fuzzer that changes bytes changes choices. Beyond the end all bytes are 0.

    >>> draw = Draw(b"\\x02\\x01")
    >>> draw.one_of("abc"), draw.below(10), draw.below(10)
    ('c', 1, 0)
    """

    def __init__(self, data: bytes) -> None:
        self._data, self._place = data, 0

    def take(self, count: int) -> bytes:
        part = self._data[self._place : self._place + count]
        self._place += count
        return part.ljust(count, b"\0")

    def rest(self) -> bytes:
        part = self._data[self._place :]
        self._place = len(self._data)
        return part

    def below(self, limit: int) -> int:
        return int.from_bytes(self.take(1 if limit <= 256 else 4), "little") % limit

    def one_of(self, options: Any) -> Any:
        return options[self.below(len(options))]

    def number(self) -> Any:
        """A float of any size, one of :data:`NUMBERS`, a small whole number, or no number at all."""
        kind = self.below(6)
        if kind == 0:
            return struct.unpack("<d", self.take(8))[0]
        if kind == 1:
            return self.below(12) - 1
        if kind == 2:
            invalid: tuple[Any, ...] = (
                None,
                True,
                "1",
                "",
                [1.0],
                {},
                10**400,
                -(2**70),
                1j,
                b"1",
                (),
                float,
                [SECRET_NUMBER] * 3,
            )
            return self.one_of(invalid)
        if kind == 3:
            return 10.0 ** ((self.below(256) - 128) / 16)
        return self.one_of(NUMBERS)


def mutated(data: bytes, rng: random.Random, tokens: tuple[bytes, ...] = ()) -> bytes:
    """The bytes with a few changes: bits, bytes, pieces removed, repeated, moved, and tokens of the format put in."""
    out = bytearray(data)
    for _ in range(1 + int(rng.expovariate(0.6))):
        place, kind = rng.randrange(len(out) + 1), rng.randrange(9 if tokens else 7)
        length = min(1 + int(rng.expovariate(0.15)), 64)
        if kind == 0 and out:
            out[place % len(out)] ^= 1 << rng.randrange(8)
        elif kind == 1 and out:
            out[place % len(out)] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, 0x22, 0x2C, 0x5B, 0x7B, rng.randrange(256)))
        elif kind == 2:
            del out[place : place + length]
        elif kind == 3:
            out[place:place] = out[place : place + length]
        elif kind == 4:
            out[place:place] = rng.randbytes(min(length, 8))
        elif kind == 5:
            other = rng.randrange(len(out) + 1)
            out[place : place + length] = out[other : other + length]
        elif kind == 6 and rng.random() < 0.2:
            del out[place:]
        elif kind >= 7:
            out[place : place + rng.choice((0, 0, length))] = rng.choice(tokens)
    return bytes(out)


def judge(target: Target, data: bytes, tally: Tally) -> str | None:
    """Run one input and count the outcome; returns the finding in one line, or None."""
    tally.inputs += 1
    wrong: str | None = None
    with _alarm(target.patience), warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            accepted = target.run(data)
            tally.accepted, tally.refused = tally.accepted + accepted, tally.refused + (not accepted)
        except target.refusals as error:
            tally.refused += 1
            wrong = _not_a_sentence(error)
        except Hang:
            wrong = f"a hang: more than {target.patience:g} seconds"
        except Broken as error:
            wrong = str(error)
        except Exception as error:
            wrong = f"{type(error).__name__} at {_place(error)}: {_short(str(error))}"
    if wrong is None and any(_leaks(str(warning.message)) for warning in warned):
        wrong = "a warning quotes a planted value"
    if wrong is not None:
        tally.findings.setdefault(_kind(wrong), data)
    return wrong


def around(target: Target) -> AbstractContextManager[Any]:
    """The context in which inputs are run."""
    made: AbstractContextManager[Any] = getattr(target, "around", nullcontext)()
    return made


def loop(target: Target, inputs: int, seed: int = 0, until: float = float("inf")) -> Tally:
    """The engine without coverage: seeds first, then mutations of them; the same inputs for the same seed."""
    tally, begun, rng = Tally(), time.monotonic(), random.Random(seed)
    with around(target):
        for data in _inputs(target, rng):
            if tally.inputs >= inputs or time.monotonic() > until:
                break
            judge(target, data, tally)
    tally.seconds = time.monotonic() - begun
    return tally


def _inputs(target: Target, rng: random.Random) -> Iterator[bytes]:
    pool = target.seeds()
    rng.shuffle(pool)
    yield from pool[:200]
    tokens: tuple[bytes, ...] = getattr(target, "tokens", ())
    while True:
        data = mutated(rng.choice(pool), rng, tokens)
        if len(pool) < 4000 and rng.random() < 0.02:
            pool.append(data)
        yield data


def leaks(*texts: str) -> bool:
    """Whether a text repeats a planted value."""
    return any(_leaks(text) for text in texts)


def _leaks(text: str) -> bool:
    return any(secret in text for secret in _SECRETS)


def _not_a_sentence(error: BaseException) -> str | None:
    """The fault of a refusal, or None: it and its cause must be one short line and quote nothing."""
    said = str(error)
    if not said.strip() or len(said) > LONGEST or re.search(r"[\n\r]", said) or "Traceback" in said:
        return f"{type(error).__name__} at {_place(error)} is not one sentence: {_short(said)}"
    if not _in_own_words(error):
        return f"{type(error).__name__} at {_place(error)} in the words of another: {_short(said)}"
    shown: BaseException | None = error
    while shown is not None:
        if _leaks(str(shown)):
            return f"{type(error).__name__} at {_place(error)} quotes a planted value"
        shown = shown.__cause__ or (None if shown.__suppress_context__ else shown.__context__)
    return None


def _in_own_words(error: BaseException) -> bool:
    """Whether the library raised it by a statement of its own (or scikit-learn, whose validation is a contract)."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return True
    file = trace.tb_frame.f_code.co_filename
    return "sklearn" in file or linecache.getline(file, trace.tb_lineno).lstrip().startswith("raise")


def _place(error: BaseException) -> str:
    """The innermost line of the library that the error passed."""
    place, trace = "?", error.__traceback__
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if "dpem" in name:
            place = f"{'/'.join(name.split('/')[-2:])}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place


def _kind(wrong: str) -> str:
    """The finding without numbers and quotations, in which equal findings may differ."""
    return re.sub(r"'[^']*'|\"[^\"]*\"|(?<![\w:])-?\d[\d.e+-]*", "…", wrong)[:160]


def _short(text: str) -> str:
    return repr(text[:200])


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    def ring(*_: Any) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def name_of(data: bytes) -> str:
    """A file name for an input."""
    return hashlib.sha256(data).hexdigest()[:16]
