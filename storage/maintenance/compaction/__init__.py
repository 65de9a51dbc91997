"""Compaction: plan, read, write Parquet, swap."""
