"""The bytes of a file that is being filled: in memory, and on disk when memory runs short."""

from pathlib import Path
from typing import Final

READ_BYTES: Final = 1 << 20


class Spool:
    """A file object for writers that only append. Nothing holds a descriptor between calls."""

    mode = "wb"
    closed = False

    def __init__(self, path: Path) -> None:
        """Use `path`, which must not exist, once `spill` is called."""
        self.path = path
        self.is_on_disk = False
        self.size_bytes = 0
        self._recent = bytearray()

    @property
    def memory_bytes(self) -> int:
        return len(self._recent)

    def write(self, data: bytes | memoryview) -> int:
        view = memoryview(data).cast("B")
        self._recent += view
        self.size_bytes += view.nbytes
        return view.nbytes

    def tell(self) -> int:
        return self.size_bytes

    def flush(self) -> None:
        """Do nothing: nothing is durable before it is in the store."""

    def close(self) -> None:
        """Do nothing: formats close what they write to, and the bytes are read afterwards."""

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def spill(self) -> None:
        """Append what is in memory to the file on disk."""
        with self.path.open("ab") as file:
            file.write(self._recent)
        self._recent.clear()
        self.is_on_disk = True

    def whole(self) -> bytes:
        """Return all bytes; for spools that were not spilled."""
        return bytes(self._recent)

    def drop(self) -> None:
        self._recent.clear()
        if self.is_on_disk:
            self.path.unlink(missing_ok=True)
