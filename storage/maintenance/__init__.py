"""What keeps a log small and whole: retention, trimming, compaction, sweep, fsck."""
