"""`python -m service.connect.running`: run connectors on the stores that `RIACHO_*` names."""

import argparse
import os
import sys

from service.connect.running.process import run
from service.process.without_pandas import refuse_pandas
from service.settings import Settings
from storage.errors import RiachoError


def main() -> int:
    """Run until stopped; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m service.connect.running")
    parser.add_argument("--until-eof", action="store_true", help="stop when stdin ends")
    parser.add_argument("--until-idle", action="store_true", help="stop without connectors")
    parser.add_argument("--holder", default="", help="who holds leases: as one that is dead")
    given = parser.parse_args()
    refuse_pandas()
    try:
        return run(
            Settings(),
            until_eof=given.until_eof,
            until_idle=given.until_idle,
            holder=given.holder,
        )
    except RiachoError as error:
        sys.stderr.write(f"riacho connect: {error} ({error.code})\n")
        return 1


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    if "obstore" in sys.modules:
        # Its threads may still use Python objects that a normal exit would destroy.
        os._exit(code)
    sys.exit(code)
