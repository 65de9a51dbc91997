"""Jobs for schedulers: `python -m service.jobs compact …`, or this file for spark-submit.

    python -m service.jobs maintain --zones a=s3://bucket --metadata dynamodb://riacho
    spark-submit service/jobs/__main__.py compact orders --metadata dynamodb://riacho …

On clusters without Riacho installed, ship it with `--py-files`. Options that are not given are
taken from `RIACHO_*` variables. Exit codes: 0 done, 1 failed, 2 wrong usage.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

if __package__ in (None, ""):
    # Started as a file: its own directory is in the path, but the packages it imports are not.
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from pydantic import ValidationError

from service.jobs import commands
from service.jobs.commands import Job
from service.jobs.runners.choice import How
from service.jobs.sweep.sweep import MIN_AGE_MS
from service.settings import Settings
from service.world import durations
from storage.errors import RiachoError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job that the arguments name; return the exit code."""
    given = _parser().parse_args(arguments)
    if given.nice:
        os.nice(given.nice)
    try:
        settings = _settings(given)
        return commands.run(
            _job(given, settings), as_json=given.output == "json", until_eof=given.until_eof
        )
    except RiachoError as error:
        _print_error(f"{error} ({error.code})")
    except ValidationError as error:
        _print_error("; ".join(f"RIACHO_{e['loc'][0]}: {e['msg']}".upper() for e in error.errors()))
    except KeyboardInterrupt:
        return 130
    return 1


def _print_error(text: str) -> None:
    sys.stderr.write(f"riacho: {' '.join(text.split())}\n")


def _seconds(text: str) -> float:
    try:
        return durations.seconds(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _settings(given: argparse.Namespace) -> Settings:
    names = ("data", "zones", "metadata")
    return Settings(**{name: getattr(given, name) for name in names if getattr(given, name)})


def _job(given: argparse.Namespace, settings: Settings) -> Job:
    how = How(
        spark=given.spark,
        master=given.master,
        concurrency=given.concurrency,
        wait_s=given.wait,
    )
    match given.job:
        case "compact":
            return partial(
                commands.compact,
                settings,
                how,
                given.topics,
                force=given.force,
                dry_run=given.dry_run,
            )
        case "retention":
            return partial(commands.retention, settings, how, given.topics, dry_run=given.dry_run)
        case "sweep":
            return partial(
                commands.sweep,
                settings,
                how,
                min_age_ms=round(given.min_age * 1000),
                limit=given.limit,
                unsafe=given.unsafe,
                dry_run=given.dry_run,
            )
        case "fsck":
            return partial(commands.fsck, settings, how, given.topics, sizes_only=given.sizes_only)
        case _:
            return partial(commands.maintain, settings, how)


def _parser() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--data", help="as for `riacho serve`")
    common.add_argument("--zones", help="as for `riacho serve`")
    common.add_argument("--metadata", help="as for `riacho serve`")
    common.add_argument(
        "--spark", action=argparse.BooleanOptionalAction, help="default: if there is much to do"
    )
    common.add_argument("--master", default="", help="Spark master; default: local[*]")
    common.add_argument("--concurrency", type=_count, help="tasks at once")
    common.add_argument("--wait", type=float, default=0.0, help="seconds to wait for other jobs")
    common.add_argument("--nice", type=int, default=0, help="how far to step back for others")
    common.add_argument("--until-eof", action="store_true", help="stop when stdin ends")
    common.add_argument("-o", "--output", choices=("text", "json"), default="text")
    parser = argparse.ArgumentParser(prog="python -m service.jobs", description="Keep logs tidy.")
    jobs = parser.add_subparsers(dest="job", required=True, metavar="JOB")

    def add(name: str, text: str, *, topics: bool = False, dry: bool = True) -> Any:
        job = jobs.add_parser(name, help=text, description=text, parents=[common])
        if topics:
            job.add_argument("topics", nargs="*", help="names of topics; none: all")
        if dry:
            job.add_argument("--dry-run", action="store_true", help="only say what would be done")
        return job

    compact = add("compact", "Rewrite what is new into large segments.", topics=True)
    compact.add_argument("--force", action="store_true", help="though little is new")
    add("retention", "Hide what is too old or too much.", topics=True)
    sweep = add("sweep", "Remove what nothing refers to.")
    sweep.add_argument(
        "--min-age", type=_seconds, default=MIN_AGE_MS / 1000, help="like 90s, 30m or 2d"
    )
    sweep.add_argument("--limit", type=_count, help="objects to remove at most")
    sweep.add_argument("--unsafe", action="store_true", help="also what may be in flight")
    fsck = add("fsck", "Check that zones hold what they should.", topics=True, dry=False)
    fsck.add_argument("--sizes-only", action="store_true", help="do not read what is stored")
    add("maintain", "Retention, compaction, sweep; once.", dry=False)
    return parser


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, not {number}")
    return number


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    if "obstore" in sys.modules:
        # Its threads may still use Python objects that a normal exit would destroy.
        os._exit(code)
    sys.exit(code)
