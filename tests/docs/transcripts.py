"""Commands in a document and the answers printed below them.

A `sh` block followed by a `json`, `http` or `text` block is a transcript: the commands, and what
the last of them printed. After the API has changed on purpose, let the answers be written anew:

    python -m tests.docs.transcripts docs/http-api.md
"""

import json
import re
import shlex
import sys
import tempfile
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.docs.markdown import ROOT, Block, blocks
from tests.docs.running import READERS_ADDRESS, shell
from tests.gateway import GatewayProcess, start_gateway

WIDTH = 116
LONG = 100

_VOLATILE = {
    *("arrow_schema_base64", "beat_ms", "crc32c", "created_ms", "gateway", "host", "id"),
    *("committed_ms", "lag_seconds", "max_timestamp", "member_id", "min_timestamp", "pid"),
    *("controller", "request_id", "started_ms", "timestamp", "url"),
}
_VOLATILE_HEADERS = {"x-request-id", "content-length"}
_NOW = re.compile(r"\b1[0-9]{12}\b")
_API_KEY = re.compile(r"(rk_[0-9A-Za-z]{16}_)\w+")


@dataclass(frozen=True)
class Transcript:
    commands: Block
    answer: Block


def transcripts(path: Path) -> list[Transcript]:
    found = blocks(path)
    return [
        Transcript(commands, answer)
        for commands, answer in pairwise(found)
        if commands.info == "sh" and answer.info in ("json", "http", "text")
    ]


def start_as_told(path: Path, folder: Path) -> GatewayProcess:
    """Start a gateway with what the document exports before `riacho serve`, if it does."""
    env: dict[str, str] = {}
    arguments: list[str] = []
    for block in _served(path):
        for line in block.text.splitlines():
            verb, *words = shlex.split(line)
            if verb == "export":
                env |= dict(word.split("=", 1) for word in words)
            else:
                arguments = words[1:]
    return start_gateway(folder, *arguments, env=env)


def commands_in(each: Transcript, folder: Path) -> str:
    """Return the commands as they are for a gateway whose data is in a folder of the test."""
    return each.commands.text.replace("riacho-data", str(folder / "data"))


def _served(path: Path) -> list[Block]:
    found = blocks(path, "console")
    return [block for block in found if block.text.startswith("export RIACHO_CONTROLLER_")]


def comparable(text: str, kind: str) -> Any:
    """Return an answer without what differs from run to run."""
    if kind == "json":
        return _stable(json.loads(text))
    if kind == "text":
        return _NOW.sub("<now>", text).strip()
    head, _, body = text.replace("\r\n", "\n").partition("\n\n")
    status, *headers = head.splitlines()
    kept = sorted(h for h in headers if h.partition(":")[0].lower() not in _VOLATILE_HEADERS)
    is_document = body.lstrip().startswith("{") and "\n{" not in body.strip()
    return status, kept, comparable(body, "json" if is_document else "text")


def _is_volatile(name: str, value: Any) -> bool:
    is_api_key = name == "key" and isinstance(value, str) and value.startswith("rk_")
    return name in _VOLATILE or is_api_key


def _stable(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: "<any>" if _is_volatile(k, v) else _stable(v) for k, v in value.items()}
    if not isinstance(value, list):
        return value
    items = [_stable(item) for item in value]
    if items and all(isinstance(item, dict) and "records" in item for item in items):
        # A poll of a group begins with another partition each time.
        return sorted(items, key=lambda item: (item["topic"], item["partition"]))
    return items


def shown(text: str, kind: str, gateway: GatewayProcess) -> str:
    """Return an answer as a document prints it."""
    text = text.replace("\r\n", "\n").replace(gateway.url.removeprefix("http://"), READERS_ADDRESS)
    if kind == "json":
        return _pretty(_shortened(json.loads(text))) + "\n"
    if kind == "text":
        return text.strip() + "\n"
    head, _, body = text.partition("\n\n")
    if body.lstrip().startswith("{") and "\n{" not in body.strip():
        body = _pretty(_shortened(json.loads(body)))
    return f"{head}\n\n{body.strip()}".strip() + "\n"


def _shortened(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _shortened_text(k, v) for k, v in value.items()}
    return [_shortened(item) for item in value] if isinstance(value, list) else value


def _shortened_text(name: str, value: Any) -> Any:
    if name == "host" and value != "*":
        return "gateway-1"
    if name == "url" and value.startswith("file:"):
        return "file:///…/riacho-data" + value.partition("/data")[2]
    if name == "key" and isinstance(value, str):
        return _API_KEY.sub(r"\1…", value)
    if isinstance(value, str) and name in _VOLATILE and len(value) > LONG:
        return value[:24] + "…"
    return _shortened(value)


def _pretty(value: Any, indent: int = 0) -> str:
    """Return JSON that breaks lines only where they would be too long."""
    flat = json.dumps(value, ensure_ascii=False)
    if len(flat) + indent <= WIDTH or not isinstance(value, dict | list):
        return flat
    pad = " " * (indent + 2)
    if isinstance(value, list):
        items = [pad + _pretty(item, indent + 2) for item in value]
        return "[\n" + ",\n".join(items) + "\n" + " " * indent + "]"
    items = [f"{json.dumps(name)}: {_pretty(item, indent + 2)}" for name, item in value.items()]
    return "{\n" + "\n".join(_filled(items, pad)) + "\n" + " " * indent + "}"


def _filled(items: list[str], pad: str) -> list[str]:
    """Return the items in lines, several to a line where they fit."""
    lines = [pad + items[0]]
    for item in items[1:]:
        lines[-1] += ","
        if "\n" in item + lines[-1] or len(f"{lines[-1]} {item}") > WIDTH:
            lines.append(pad + item)
        else:
            lines[-1] += f" {item}"
    return lines


def refresh(path: Path) -> None:
    """Send all commands of a document again and print their answers into it."""
    text, place = path.read_text(), 0
    with tempfile.TemporaryDirectory() as name, start_as_told(path, Path(name)) as gateway:
        folder = Path(name)
        for each in transcripts(path):
            commands = commands_in(each, folder)
            printed = shell(commands, gateway, folder if _served(path) else ROOT)
            answer = shown(printed, each.answer.info, gateway)
            old = f"```sh\n{each.commands.text}```\n\n```{each.answer.info}\n{each.answer.text}```"
            new = f"```sh\n{each.commands.text}```\n\n```{each.answer.info}\n{answer}```"
            # Behind the one before, since a document may send the same twice.
            place = text.index(old, place)
            text = text[:place] + new + text[place + len(old) :]
            place += len(new)
    path.write_text(text)


if __name__ == "__main__":
    refresh(Path(sys.argv[1]).resolve())
