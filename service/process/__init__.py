"""Process concerns of a gateway: logs, memory, version, watching its stores."""
