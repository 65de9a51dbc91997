"""Kinds of records that can be asked for by name."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from service.connect.connectors.datagen.makers import (
    Maker,
    chosen,
    counted,
    moment,
    numbered,
    real,
    struct_of,
    whole,
)
from service.connect.data.schema import INT32, INT64, STRING

_NEW_YEAR_MS: Final = 1_767_225_600_000
"""2026-01-01 UTC, when the first record of each kind happened."""


@dataclass(frozen=True, slots=True)
class Quickstart:
    maker: Maker
    key_field: str


QUICKSTARTS: Final[Mapping[str, Quickstart]] = {
    "users": Quickstart(
        struct_of(
            "riacho.datagen.User",
            registertime=moment(_NEW_YEAR_MS, 60_000),
            userid=numbered("User_", 9),
            regionid=numbered("Region_", 9),
            gender=chosen(STRING, ["MALE", "FEMALE", "OTHER"]),
        ),
        "userid",
    ),
    "pageviews": Quickstart(
        struct_of(
            "riacho.datagen.Pageview",
            viewtime=counted(1, 10, INT64),
            userid=numbered("User_", 9),
            pageid=numbered("Page_", 99),
        ),
        "viewtime",
    ),
    "orders": Quickstart(
        struct_of(
            "riacho.datagen.Order",
            ordertime=moment(_NEW_YEAR_MS, 1000),
            orderid=counted(0),
            itemid=numbered("Item_", 999),
            orderunits=real(0.1, 10.0, 2),
            address=struct_of(
                "riacho.datagen.Address",
                city=numbered("City_", 99),
                state=numbered("State_", 99),
                zipcode=whole(10_000, 100_000, INT64),
            ),
        ),
        "orderid",
    ),
    "clickstream": Quickstart(
        struct_of(
            "riacho.datagen.Click",
            ip=chosen(STRING, [f"203.0.113.{n}" for n in range(1, 255)]),
            userid=whole(1, 50),
            time=moment(_NEW_YEAR_MS, 20),
            request=chosen(
                STRING,
                ["GET /", "GET /basket", "GET /items/17", "POST /basket", "POST /login"],
            ),
            status=chosen(INT32, [200, 200, 200, 200, 302, 404, 500]),
            bytes=whole(200, 20_000, INT64),
            agent=chosen(STRING, ["Firefox", "Chrome", "Safari", "curl"]),
        ),
        "ip",
    ),
    "stock_trades": Quickstart(
        struct_of(
            "riacho.datagen.Trade",
            side=chosen(STRING, ["BUY", "SELL"]),
            quantity=whole(1, 5000),
            symbol=chosen(STRING, ["ZRIA", "ZLOG", "ZTBL", "ZOBJ", "ZACK", "ZSEG"]),
            price=whole(5, 1000),
            account=numbered("Account_", 50),
            userid=numbered("User_", 9),
        ),
        "symbol",
    ),
    "inventory": Quickstart(
        struct_of(
            "riacho.datagen.Stock",
            id=counted(0, 1, INT64),
            productid=whole(1, 1000),
            warehouse=numbered("Warehouse_", 5),
            quantity=whole(0, 500),
        ),
        "id",
    ),
}
