"""Model files that somebody has changed: fields forged with a checksum that matches, and how they are refused."""

import copy
import json

import pytest
from hypothesis import strategies as st

from dpem._json import checksum
from dpem.persistence import load_model


def forge(document):
    """The text of a document with a checksum that matches, whatever it says."""
    document = {key: value for key, value in document.items() if key != "checksum"}
    return json.dumps({**document, "checksum": checksum(document)})


def put(document, path, value):
    """A copy with one field set, or removed if the value is ``...``."""
    document = copy.deepcopy(document)
    inner = document
    *way, last = path
    for key in way:
        inner = inner[key]
    if value is ...:
        del inner[last]
    else:
        inner[last] = value
    return document


def refusal(path, text):
    """The one sentence with which a file is refused."""
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=r"^'.*' cannot be loaded: [^\n]*[^.]\.$") as caught:
        load_model(path)
    assert len(str(caught.value)) < 500 + len(str(path))
    return str(caught.value)


#: Values of every JSON type, ordinary and extreme.
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**53), 2**53),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(
        [0, 1, 2, 6, 1.0, -1.0, 1e-320, 1e308, "inf", "auto", "improved", "equal", "Refine", [], {}, [0, 1]]
    ),
    st.text(max_size=5),
    st.lists(st.integers(0, 6) | st.floats(allow_nan=False, allow_infinity=False), max_size=7),
)


def paths(value, prefix=()):
    """Every place in a JSON value."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        yield [*prefix, key]
        yield from paths(part, (*prefix, key))
