"""The open files of a partition, when they are cut, and which schema they keep."""
