"""Commands that work on the stores: compact, sweep, fsck, doctor and so on."""
