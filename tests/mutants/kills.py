"""Killed mutants, remembered until their function or the test that killed them changes.

So after writing a test for a survivor only the survivors are tried again.
"""

import ast
import hashlib
import json
from pathlib import Path
from typing import Final

from tests.mutants import traces
from tests.mutants.mutations import Mutant, functions

_FILE: Final = Path(".mutants") / "kills.json"


class Kills:
    def __init__(self, root: Path, source: str, *, fresh: bool = False) -> None:
        self._root = root
        self._path = root / _FILE
        self._bodies = {
            name: hashlib.sha256(ast.dump(function).encode()).hexdigest()[:16]
            for name, function in functions(ast.parse(source))
        }
        stored = {} if fresh or not self._path.exists() else json.loads(self._path.read_text())
        self._killers: dict[str, list[str]] = stored

    def knows(self, mutant: Mutant) -> bool:
        """Return whether it was killed by a test that has not changed since."""
        _, file = self._killers.get(self._key(mutant), ("", "?"))
        return file != "?" and (not file or file == self._file(file.rpartition(":")[0]))

    def killer(self, mutant: Mutant) -> str | None:
        """Return the test that killed it; None if it timed out."""
        return self._killers[self._key(mutant)][0] or None

    def add(self, mutant: Mutant, killer: str | None) -> None:
        file = self._file(killer.partition("::")[0]) if killer else ""
        self._killers[self._key(mutant)] = [killer or "", file]
        self._path.parent.mkdir(exist_ok=True)
        self._path.write_text(json.dumps(self._killers))

    def _key(self, mutant: Mutant) -> str:
        return f"{mutant.module}:{self._bodies[mutant.function]}:{mutant.name}"

    def _file(self, file: str) -> str:
        path = self._root / file
        return traces.key_of(path) if path.is_file() else "gone"
