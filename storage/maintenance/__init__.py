"""Keeps logs small and intact: retention, trimming, compaction, sweep, fsck."""
