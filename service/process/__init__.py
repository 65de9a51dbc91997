"""What a gateway does as a process: logs, memory, version, watching its stores."""
