"""Offsets of a group that are committed together with the records of a transaction."""

from typing import Any

from riacho.consumer.commits import Commits, Standing
from riacho.consumer.group_calls import Beat, Offsets, offsets_document
from riacho.errors import CommitFailed, new_error
from storage.errors import IllegalGeneration, RiachoError, UnknownMember


class GroupOffsets:
    """Where a transaction puts a group. Of a consumer, as long as that is its member."""

    def __init__(
        self,
        group: str,
        offsets: Offsets,
        standing: Standing | None = None,
        commits: Commits | None = None,
    ) -> None:
        """Take what is to be committed, and by which member.

        Raises `CommitFailed` for a consumer that lost its place in the group.
        """
        self.group = group
        self._offsets = dict(offsets)
        self._standing = standing
        self._commits = commits
        self._beat: Beat | None = None if standing is None else standing.beat
        if standing is not None and standing.is_managed and self._beat is None:
            raise new_error(CommitFailed, "this consumer is no member of its group now")

    def __bool__(self) -> bool:
        return bool(self._offsets)

    def after(self, earlier: "GroupOffsets | None") -> "GroupOffsets":
        """Return these together with those that the transaction has already."""
        if earlier is not None:
            if earlier.group != self.group:
                groups = f"{earlier.group!r} and {self.group!r}"
                raise ValueError(f"a transaction takes the offsets of one group, not of {groups}")
            self._offsets = earlier._offsets | self._offsets
        return self

    def document(self) -> dict[str, Any]:
        """Return what the gateway is told."""
        return {"group": self.group, **offsets_document(self._offsets, self._beat)}

    async def follow(self, error: RiachoError) -> None:
        """Learn of the new generation that made the gateway refuse these offsets.

        Returns if all the partitions are still the consumer's, so that the same may be asked
        again. Raises `CommitFailed` if they are not.
        """
        beat = None
        if self._standing is not None and isinstance(error, IllegalGeneration):
            try:
                beat = await self._standing.refresh()
            except (UnknownMember, IllegalGeneration) as lost:
                error = lost
        if beat is None:
            if self._standing is not None:
                await self._standing.lose(error)
            raise new_error(CommitFailed, f"the partitions are others' now: {error}") from error
        gone = self._offsets.keys() - (beat.assignment | beat.revoke)
        if gone:
            names = ", ".join(map(str, sorted(gone)))
            raise new_error(CommitFailed, f"no longer this consumer's: {names}") from error
        self._beat = beat

    def note_committed(self) -> None:
        """Tell the consumer that these are committed."""
        if self._commits is not None:
            self._commits.note_committed(self._offsets)
