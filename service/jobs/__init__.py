"""Retention, compaction, sweep and fsck as processes that hold a lease."""
