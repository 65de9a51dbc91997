"""`python -m infra [name=value …]`: build the packages, and write the CDK output to cdk.out.

python -m infra zones=a,b,c auth=jwt jwt_issuer=https://… jwt_audience=riacho
python -m infra --no-bundle memory_mb=3008     with the packages of the last build
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from infra import bundle
from infra.parameters import ROOT, Parameters, WrongParameter


def main(arguments: Sequence[str] | None = None) -> int:
    """Build and synthesise as the arguments say; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m infra", description="Synthesize a deployment.")
    parser.add_argument("parameters", nargs="*", metavar="NAME=VALUE", help="see docs/deploy.md")
    parser.add_argument("--out", type=Path, default=ROOT / "cdk.out", help="default: cdk.out")
    parser.add_argument("--no-bundle", action="store_true", help="the packages are there")
    given = parser.parse_args(arguments)
    try:
        context = dict(_pair(text) for text in given.parameters)
        parameters = Parameters.of(context)
        if not given.no_bundle:
            _bundle(parameters)
    except (WrongParameter, bundle.TooLarge) as error:
        sys.stderr.write(f"infra: {error}\n")
        return 1
    # Imported late: it takes seconds, and a wrong parameter must fail at once.
    from infra.app import build

    build(given.out, context).synth()
    sys.stdout.write(f"{given.out} is ready to deploy\n")
    return 0


def _pair(text: str) -> tuple[str, str]:
    name, found, value = text.partition("=")
    if not found:
        raise WrongParameter(f"{text!r} should be name=value")
    return name, value


def _bundle(parameters: Parameters) -> None:
    size = bundle.build_functions(
        parameters.function_package,
        python=parameters.python,
        architecture=parameters.architecture,
        libraries=parameters.libraries,
    )
    sys.stdout.write(f"{parameters.function_package}: {size / 1e6:.1f} MB\n")
    size = bundle.build_job(
        parameters.job_package,
        python=parameters.emr_python,
        architecture=parameters.architecture,
    )
    sys.stdout.write(f"{parameters.job_package}: {size / 1e6:.1f} MB\n")


if __name__ == "__main__":
    sys.exit(main())
