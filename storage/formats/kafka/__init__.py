"""Kafka's record batches (magic 2) as pure functions: check, decode, encode, place.

layout        the 61 bytes in front of a batch, and the bytes between batches
compression   the four codecs, bounded
walk          where the keys, values and headers of a batch lie
batches       what a producer sent, checked; what a reader gets, placed
decoding      batches to Arrow
encoding      Arrow to batches
"""
