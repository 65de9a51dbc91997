"""The head of a lane, and how it changes. Mostly pure."""
