"""Metadata, filters and moments of the agents' memory."""

import math
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmem_jax.agent.metadata import check_metadata, matching
from dmem_jax.agent.times import moment, seconds, utc
from dmem_jax.errors import ArgumentTypeError, ArgumentValueError

pytestmark = pytest.mark.quick

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(st.text(max_size=3), json_values, max_size=4)


@given(objects)
def test_a_copy_that_is_equal(metadata):
    copy = check_metadata(metadata)
    assert copy == metadata
    assert matching({key: {"$eq": value} for key, value in metadata.items()})(copy)


def test_no_live_reference():
    given = {"tags": ["a"], "who": {"name": "Anna"}}
    copy = check_metadata(given)
    given["tags"].append("b")
    given["who"]["name"] = "Eve"
    assert copy == {"tags": ["a"], "who": {"name": "Anna"}}
    wanted = {"tags": ["a"]}
    asks = matching(wanted)
    wanted["tags"].append("b")
    assert asks(copy)


def test_what_json_makes_of_it():
    assert check_metadata(None) == {}
    assert check_metadata({"place": (1, 2), "text": "\0'; DROP TABLE"}) == {"place": [1, 2], "text": "\0'; DROP TABLE"}


def _within_itself() -> dict:
    one: dict = {}
    one["self"] = one
    return one


def _deep() -> dict:
    one: dict = {}
    for _ in range(200_000):
        one = {"in": one}
    return one


@pytest.mark.parametrize(
    ("metadata", "error", "message"),
    [
        ([("a", 1)], ArgumentTypeError, "metadata: expected a dict"),
        ({1: "a"}, ArgumentTypeError, "expected keys that are str, got 1"),
        ({"a": [{"b": {None: 1}}]}, ArgumentTypeError, "expected keys that are str, got None"),
        ({(1, 2): "a"}, ArgumentTypeError, "metadata: "),
        ({"a": datetime(2026, 1, 1)}, ArgumentTypeError, "datetime"),
        ({"a": b"bytes"}, ArgumentTypeError, "bytes"),
        ({"a": {1, 2}}, ArgumentTypeError, "set"),
        ({"a": math.nan}, ArgumentValueError, "metadata: expected what JSON can hold"),
        ({"a": [math.inf]}, ArgumentValueError, "metadata: expected what JSON can hold"),
        ({"a": 10**5000}, ArgumentValueError, "metadata: expected what JSON can hold"),
        (_within_itself(), ArgumentValueError, "metadata: expected at most 64 levels"),
        (_deep(), ArgumentValueError, "metadata: expected at most 64 levels"),
    ],
    ids=lambda given: given if isinstance(given, str) else type(given).__name__,
)
def test_bad_metadata(metadata, error: type[Exception], message: str):
    with pytest.raises(error, match=message):
        check_metadata(metadata)


ANNA = {"name": "Anna", "age": 30, "height": 1.7, "vip": True, "tags": ["a", 1], "home": {"city": "Oslo"}, "none": None}


@pytest.mark.parametrize(
    ("filter", "expected"),
    [
        (None, True),
        ({}, True),
        ({"name": "Anna"}, True),
        ({"name": "anna"}, False),
        ({"name": "Anna", "age": 31}, False),
        ({"name": "Anna", "age": 30.0}, True),
        ({"vip": 1}, False),  # a flag is no number
        ({"vip": True}, True),
        ({"age": "30"}, False),
        ({"tags": ["a", 1]}, True),
        ({"tags": ["a", True]}, False),
        ({"tags": "a"}, False),  # the whole value, not one of its parts
        ({"home": {"city": "Oslo"}}, True),
        ({"home": {"city": "Oslo", "zip": 1}}, False),
        ({"home": {}}, False),
        ({"none": None}, True),
        ({"other": None}, False),
        ({"other": {"$ne": 1}}, True),
        ({"other": {"$ne": None}}, True),
        ({"other": {"$lt": 1}}, False),
        ({"other": {"$in": [None, 1]}}, False),
        ({"age": {"$ne": 30}}, False),
        ({"age": {"$ne": "30"}}, True),
        ({"age": {"$gt": 29, "$lt": 31}}, True),
        ({"age": {"$gt": 30}}, False),
        ({"age": {"$gte": 30, "$lte": 30}}, True),
        ({"age": {"$gte": 10, "$lt": 30}}, False),
        ({"age": {"$lt": "31"}}, False),
        ({"age": {"$lt": math.inf}}, True),
        ({"age": {"$lte": math.nan}}, False),
        ({"name": {"$lt": 5}}, False),
        ({"name": {"$gte": "A", "$lt": "B"}}, True),
        ({"vip": {"$gte": 0}}, False),
        ({"tags": {"$gt": "a"}}, False),
        ({"none": {"$lte": 0}}, False),
        ({"age": {"$in": [29, 30]}}, True),
        ({"age": {"$in": (29,)}}, False),
        ({"name": {"$in": {"Anna", "Bob"}}}, True),
        ({"vip": {"$in": [1, "True"]}}, False),
        ({"home": {"$in": [{"city": "Oslo"}]}}, True),
        ({"age": {"$in": []}}, False),
        ({"age": {"$eq": 30, "$in": [30], "$ne": 31}}, True),
        ({"a') OR 1=1 --": 1}, False),
    ],
)
def test_filters(filter, expected: bool):
    assert matching(filter)(ANNA) is expected


@given(objects, objects)
def test_never_an_exception(metadata, filter):
    for key, value in filter.items():
        ordered = isinstance(value, str | int | float) and not isinstance(value, bool)
        for name in ("$eq", "$ne", *(("$gt", "$gte", "$lt", "$lte") if ordered else ())):
            assert isinstance(matching({key: {name: value}})(metadata), bool)
        assert matching({key: {"$ne": value}})(metadata) is not matching({key: {"$eq": value}})(metadata)


@pytest.mark.parametrize(
    ("filter", "error", "message"),
    [
        (["name"], ArgumentTypeError, "filter: expected a dict"),
        ({1: 2}, ArgumentTypeError, "filter: expected keys that are str, got 1"),
        ({"age": {"$like": "A%"}}, ArgumentValueError, r"filter\['age'\]: unknown operator '\$like'; there are \$eq"),
        ({"age": {"$gt": 1, "lt": 2}}, ArgumentValueError, "unknown operator 'lt'"),
        ({"age": {"$in": "abc"}}, ArgumentTypeError, r"expected a list for \$in, got 'abc'"),
        ({"age": {"$gt": None}}, ArgumentTypeError, r"expected a number or a str for \$gt, got None"),
        ({"age": {"$lte": True}}, ArgumentTypeError, r"expected a number or a str for \$lte, got True"),
        ({"when": datetime(2026, 1, 1)}, ArgumentTypeError, "datetime"),
    ],
)
def test_bad_filters(filter, error: type[Exception], message: str, unchecked):
    with pytest.raises(error, match=message):
        matching(filter)


def test_naive_means_utc():
    naive = datetime(2026, 11, 30, 12)
    aware = datetime(2026, 11, 30, 14, tzinfo=timezone(timedelta(hours=2)))
    assert utc(naive) == utc(aware) == datetime(2026, 11, 30, 12, tzinfo=UTC)
    assert utc(aware).utcoffset() == timedelta(0)
    assert seconds(naive) == seconds(aware)


def test_seconds_since_2020():
    assert seconds(datetime(2020, 1, 1)) == 0
    assert seconds(datetime(2020, 1, 2, 0, 0, 1, 999_999)) == 86_401
    assert seconds(datetime(2019, 12, 31, 23, 59, 59, 500_000)) == -1  # rounded down, before it too


@given(st.integers(-(2**31), 2**31 - 1))
def test_seconds_come_back(given: int):
    assert seconds(moment(given)) == given
    assert moment(given).utcoffset() == timedelta(0)


@pytest.mark.parametrize("step", [-1, 1])
def test_beyond_the_clock(step: int):
    edge = moment(2**31 - 1 if step > 0 else -(2**31))
    with pytest.raises(ArgumentValueError, match="since: expected a moment from 1951-12-13 to 2088-01-19, got "):
        seconds(edge + timedelta(seconds=step), "since")
    year = datetime.max if step > 0 else datetime.min
    with pytest.raises(ArgumentValueError, match=r"time: expected a moment of the years 1 \.\. 9999"):
        utc(year.replace(tzinfo=timezone(timedelta(hours=-14 * step))))


@pytest.mark.parametrize("given", [0, "2026-11-30", None, datetime(2026, 1, 1).date()])
def test_no_moment(given, unchecked):
    with pytest.raises(ArgumentTypeError, match="time: expected a datetime, got"):
        utc(given)
