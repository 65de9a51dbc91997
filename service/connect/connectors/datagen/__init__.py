"""Records that nobody sent: made up, for demonstrations and tests."""
