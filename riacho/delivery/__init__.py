"""From records to acknowledged batches: accumulate, number, send, retry."""
