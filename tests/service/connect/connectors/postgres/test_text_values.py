import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.connect.connectors.postgres import text_values
from service.connect.connectors.postgres.snapshot import row_of
from tests.examples import some

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@some
@given(st.dates())
def test_dates_are_counted_as_python_does(day: date) -> None:
    days = day.toordinal() - date(1970, 1, 1).toordinal()
    assert text_values.date_days(day.isoformat()) == days
    assert text_values.civil_of(days) == (day.year, day.month, day.day)


@given(st.integers(-2_000_000, 3_000_000))
def test_days_and_dates_are_inverse_in_all_years(days: int) -> None:
    assert text_values.days_of(*text_values.civil_of(days)) == days


@some
@given(st.datetimes(), st.integers(-15 * 60, 15 * 60))
def test_times_with_an_offset_are_in_utc(at: datetime, minutes: int) -> None:
    sign = "+" if minutes >= 0 else "-"
    offset = f"{sign}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}"
    us = (at.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)
    found = text_values.timestamp_us(f"{at.isoformat(sep=' ')}{offset}")
    assert found == us - minutes * 60_000_000


@pytest.mark.parametrize(
    ("text", "us", "iso"),
    [
        ("1 year 2 mons 3 days 04:05:06.78", 37_091_106_780_000, "P1Y2M3DT4H5M6.78S"),
        ("-1 mons -3 days -00:00:01.5", -2_889_001_500_000, "P0Y-1M-3DT-0H-0M-1.5S"),
        ("00:00:00", 0, "P0Y0M0DT0H0M0S"),
        ("-1 years +100:00:00", -31_197_600_000_000, "P-1Y0M0DT100H0M0S"),
    ],
)
def test_intervals(text: str, us: int, iso: str) -> None:
    assert text_values.interval_us(text) == us
    assert text_values.iso_interval(text) == iso


def test_what_python_has_no_dates_for() -> None:
    assert text_values.date_days("0044-03-15 BC") == -735_160
    assert (
        text_values.zoned_timestamp("0044-03-15 12:00:00+00 BC") == "-0043-03-15T12:00:00.000000Z"
    )
    assert (
        text_values.zoned_timestamp("12345-01-02 03:04:05.6+00", 3) == "+12345-01-02T03:04:05.600Z"
    )
    assert text_values.zoned_timestamp("infinity") == "infinity"
    assert text_values.time_us("24:00:00") == 86_400_000_000
    assert text_values.zoned_time("23:30:00.5-01:30") == "01:00:00.5Z"


@pytest.mark.parametrize(
    ("text", "elements"),
    [
        ("{}", []),
        ("{1,NULL,3}", ["1", None, "3"]),
        (r'{a,"b c","q\"x\\y","NULL","",é}', ["a", "b c", 'q"x\\y', "NULL", "", "é"]),
        ("[0:1]={1,2}", ["1", "2"]),
        ('{{1,2},{"}",3}}', [None, None]),
    ],
)
def test_arrays(text: str, elements: list[str | None]) -> None:
    assert text_values.array_elements(text) == elements


@some
@given(st.text('{}",\\N[]=( )', max_size=12))
def test_any_text_is_an_array_or_refused(text: str) -> None:
    for read in (text_values.array_elements, text_values.hstore, text_values.point):
        try:
            read(text)
        except ValueError:
            continue


def test_hstores_bits_bytes_and_money() -> None:
    assert text_values.hstore(r'"a"=>"1", "q\"=>"=>NULL') == {"a": "1", 'q"=>': None}
    assert json.dumps(text_values.hstore("")) == "{}"
    assert text_values.bits("110011001100") == b"\xcc\x0c"
    assert text_values.bits("00000") == b""
    assert text_values.bytea(r"\xdead") == b"\xde\xad"
    assert text_values.money("-$1,234.56") == Decimal("-1234.56")


def test_lines_of_copy() -> None:
    assert row_of(b"1\t\\N\t\ta\\tb\\nc\\\\N\\\\\\\\\\r\xc3\xa4") == [
        *("1", None, "", "a\tb\nc\\N\\\\\rä"),
    ]
