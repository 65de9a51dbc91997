"""Runs what the documents show, as a reader would, against a gateway of the test."""

import os
import subprocess
import sys
from pathlib import Path

from tests.docs.markdown import ROOT
from tests.gateway import GatewayProcess

READERS_ADDRESS = "localhost:8080"
"""Where the documents expect the gateway."""

TIMEOUT_S = 480


def environment(gateway: GatewayProcess) -> dict[str, str]:
    inherited = {name: text for name, text in os.environ.items() if not name.startswith("RIACHO_")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{inherited['PATH']}"
    return {**inherited, "RIACHO_URL": gateway.url, "PATH": path, "NO_PROXY": "*"}


def run(command: list[str], gateway: GatewayProcess, folder: Path, stdin: str = "") -> str:
    """Return what the command prints on stdout. It must succeed."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment(gateway),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def shell(text: str, gateway: GatewayProcess, folder: Path = ROOT) -> str:
    """Return what lines of a document print, the gateway's address put in for the reader's."""
    here = text.replace(READERS_ADDRESS, gateway.url.removeprefix("http://"))
    return run(["bash", "-euo", "pipefail", "-c", here], gateway, folder)
