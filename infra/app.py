"""The CDK app. `make synth` runs it; `-c name=value` of the CDK's command line changes it.

Synthesis fails if cdk-nag finds anything that is not accepted with a reason (`infra/reasons.py`).
It needs no AWS account, no docker, and no node on PATH: a package from PyPI brings one.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from infra import node_runtime  # First: it says which node the CDK starts.

node_runtime.choose()

from aws_cdk import App, Validations  # noqa: E402
from cdk_nag import AwsSolutionsChecks  # noqa: E402

from infra.parameters import Parameters  # noqa: E402
from infra.stack import RiachoStack  # noqa: E402


def build(out: Path | None = None, context: Mapping[str, Any] | None = None) -> App:
    """Return the app for `context`, which is added to the CDK's command line and cdk.json."""
    app = App(outdir=str(out) if out else None, context=context)
    parameters = Parameters.from_context(app.node.try_get_context)
    RiachoStack(app, parameters)
    Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    return app


if __name__ == "__main__":
    build().synth()
