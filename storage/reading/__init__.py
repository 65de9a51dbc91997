"""From an offset to stored slices."""
