"""Decides which tables a history has, how long rows stay, and how an older history becomes one of today.

Pure: SQL as text. A migration is a list of statements, run in one transaction; what was released is never changed, a
new version is appended.
"""

from __future__ import annotations

from typing import Final

Migration = tuple[str, ...]

KEEP_DAYS: Final = 365  # of a row, unless told otherwise

MIGRATIONS: Final[tuple[Migration, ...]] = (
    (
        "create table meta (version integer not null)",
        "insert into meta values (0)",
        """create table peers (seen timestamp not null, mesh varchar, peer varchar, device_class varchar,
            browser varchar, version varchar, provider varchar, threads integer, device varchar,
            memory_bytes bigint, overhead_bytes bigint, step_s double)""",
        """create table units (seen timestamp not null, mesh varchar, model varchar, peer varchar,
            device_class varchar, browser varchar, provider varchar, kind varchar, bucket integer, phase varchar,
            flops bigint, weight_bytes bigint, seconds double)""",
        """create table links (seen timestamp not null, mesh varchar, src varchar, dst varchar, src_class varchar,
            dst_class varchar, rtt_s double, bytes_per_s double, overhead_s double, relayed boolean)""",
        """create table sessions (seen timestamp not null, mesh varchar, model varchar, plan bigint, stages integer,
            classes varchar, tokens bigint, seconds double, token_s double, p90_s double, longest_s double,
            predicted_s double, sessions integer)""",
        """create table plans (seen timestamp not null, mesh varchar, model varchar, version bigint, event varchar,
            stages integer, standbys integer, peers integer, predicted_s double, predicted_per_s double,
            layout varchar, reason varchar)""",
        """create table recoveries (seen timestamp not null, mesh varchar, peer varchar, device_class varchar,
            polite boolean, plan_before bigint, plan_after bigint, seconds double)""",
        """create table stays (seen timestamp not null, mesh varchar, peer varchar, device_class varchar,
            condition varchar, seconds double, ended boolean)""",
        """create table benchmarks (seen timestamp not null, name varchar, figure varchar, value double,
            unit varchar, machine varchar)""",
    ),
    ("alter table peers add column again boolean",),
)


def missing(version: int, migrations: tuple[Migration, ...] = MIGRATIONS) -> tuple[Migration, ...] | None:
    """What brings a history of `version` (0: an empty file) up to date; None when it is newer than this program."""
    return None if version > len(migrations) else migrations[version:]
