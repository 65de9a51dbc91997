"""The gateway without HTTP: batching, writing, sequences, fetches and long polls."""
