"""Offsets of a group that are committed together with the records of a transaction."""

from typing import Any

from riacho.consumer.commits import Commits, Standing
from riacho.consumer.group_calls import Beat, Offsets, offsets_document
from riacho.errors import CommitFailed, new_error
from storage.errors import IllegalGeneration, RiachoError, UnknownMember


class GroupOffsets:
    """Offsets of a group to commit. A consumer's are valid only while it is a member."""

    def __init__(
        self,
        group: str,
        offsets: Offsets,
        standing: Standing | None = None,
        commits: Commits | None = None,
    ) -> None:
        """Take the offsets to commit, and the member that commits them.

        Raises `CommitFailed` for a consumer that is no longer a member of its group.
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
        """Return these merged with those that the transaction already has."""
        if earlier is not None:
            if earlier.group != self.group:
                groups = f"{earlier.group!r} and {self.group!r}"
                raise ValueError(f"a transaction takes the offsets of one group, not of {groups}")
            self._offsets = earlier._offsets | self._offsets
        return self

    def document(self) -> dict[str, Any]:
        """Return the body for the gateway."""
        return {"group": self.group, **offsets_document(self._offsets, self._beat)}

    async def follow(self, error: RiachoError) -> None:
        """Fetch the new generation, after the gateway refused these offsets.

        Returns if the consumer still owns all the partitions, so that the request may be
        retried. Raises `CommitFailed` if it does not.
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
        """Report to the consumer that these offsets are committed."""
        if self._commits is not None:
            self._commits.note_committed(self._offsets)
