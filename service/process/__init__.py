"""Process concerns of a gateway: the stores it opens and watches, logs, memory, lost clients."""
