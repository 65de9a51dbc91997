"""Where a record goes: its time, the folder of its partitioner, the name of its file."""
